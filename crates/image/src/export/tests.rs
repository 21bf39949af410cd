//! The header of an image is what its owner makes of it after it was looked at: here it was not looked at.

use super::*;
use std::fs;
use std::process::Command;

const SECRET: &[u8] = b"SECRET OF ROOT";

fn create(arguments: &[&str]) {
    let status = Command::new("qemu-img").args(["create", "-q"]).args(arguments).status().unwrap();
    assert!(status.success(), "{arguments:?}");
}

fn open(image: &Path, format: Format, access: Access) -> Result<Export, ImageError> {
    Export::open(Layer { file: FileDisk::open(image, access).unwrap(), format }, Vec::new())
}

#[test]
fn a_file_that_only_the_header_names_is_not_opened() {
    if !longrun_sys::is_root() {
        return;
    }
    let base = tempfile::tempdir().unwrap();
    let [victim, image] = ["victim", "image"].map(|name| base.path().join(name));
    let (victim_name, image_name) = (victim.to_str().unwrap(), image.to_str().unwrap());
    let flat = base.path().join("image-flat");
    let data_file = format!("data_file={victim_name}");
    let makers: [(Format, Vec<&str>); 4] = [
        (Format::Qcow2, vec!["-f", "qcow2", "-b", victim_name, "-F", "raw", image_name, "1M"]),
        (Format::Qcow2, vec!["-f", "qcow2", "-o", &data_file, image_name, "1M"]),
        (Format::Vmdk, vec!["-f", "vmdk", "-b", victim_name, "-F", "vmdk", image_name]),
        (Format::Vmdk, vec!["-f", "vmdk", "-o", "subformat=monolithicFlat", image_name, "1M"]),
    ];
    for (format, arguments) in makers {
        // A backing file of this format has to be one.
        create(&["-f", if arguments.contains(&"vmdk") { "vmdk" } else { "raw" }, victim_name, "1M"]);
        create(&arguments);
        if flat.exists() {
            fs::remove_file(&flat).unwrap();
            let description = fs::read_to_string(&image).unwrap();
            fs::write(&image, description.replace("image-flat", victim_name)).unwrap();
        }
        let mut content = SECRET.to_vec();
        content.resize(1 << 20, 0);
        fs::write(&victim, &content).unwrap();
        for access in [Access::Read, Access::Write] {
            let before = fs::read(&image).unwrap();
            let refused = open(&image, format, access).map(drop).unwrap_err();
            let ImageError::Daemon { message, .. } = &refused else { panic!("{arguments:?}: {refused}") };
            // It was looked for, where it is not.
            assert!(message.contains(victim_name) && message.contains("No such file"), "{arguments:?}: {refused}");
            assert!(fs::read(&victim).unwrap() == content, "{arguments:?}: the other file was changed");
            assert!(fs::read(&image).unwrap() == before, "{arguments:?}: the image was changed");
        }
        fs::remove_file(&victim).unwrap();
        fs::remove_file(&image).unwrap();
    }
}

#[test]
fn files_are_opened_though_others_have_their_names() {
    let base = tempfile::tempdir().unwrap();
    let [below, image] = ["below", "image"].map(|name| base.path().join(name));
    fs::write(&below, vec![7; 1 << 20]).unwrap();
    create(&["-f", "qcow2", "-b", below.to_str().unwrap(), "-F", "raw", image.to_str().unwrap()]);
    let [image_file, below_file] = [&image, &below].map(|path| FileDisk::open(path, Access::Read).unwrap());
    for path in [&image, &below] {
        fs::remove_file(path).unwrap();
        fs::write(path, "another file").unwrap();
    }
    let layers = (Layer { file: image_file, format: Format::Qcow2 }, Layer { file: below_file, format: Format::Raw });
    let export = Export::open(layers.0, vec![layers.1]).unwrap();
    let mut found = vec![0; 1 << 20];
    export.read(Bytes(0), &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 7));
}
