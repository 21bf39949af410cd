//! `boot enable` and `boot disable`: units of systemd, and hooks of the initramfs.
//!
//! The files are compiled in, with the path of this program put into them. A file of the same name that is not ours is neither replaced
//! nor removed.

use super::{open_root, order, volume};
use crate::args::boot::InstallArgs;
use crate::exit::{Failure, Status};
use crate::progress::say;
use crate::report::print;
use longrun_boot::{Names, Root, Store, replan};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where this program is in the files as they are shipped.
const PROGRAM: &str = "/usr/local/bin/longrun";
/// Every file of ours says so.
const OURS: &str = "# Longrun: ";
const UNITS: &str = "etc/systemd/system";

/// A file to install: where, below which directory that must be there, and what.
struct File {
    path: &'static str,
    needs: &'static str,
    text: &'static str,
    mode: u32,
}

macro_rules! shipped {
    ($name:literal) => {
        include_str!(concat!("../../../../../packaging/boot/", $name))
    };
}

const fn unit(path: &'static str, text: &'static str) -> File {
    File { path, needs: "", text, mode: 0o644 }
}

const fn hook(path: &'static str, needs: &'static str, text: &'static str) -> File {
    File { path, needs, text, mode: 0o755 }
}

/// What is there where initramfs-tools, or dracut, makes the initramfs.
const INITRAMFS_TOOLS: &str = "etc/initramfs-tools";
const DRACUT: &str = "usr/lib/dracut/modules.d";

/// What the boot needs.
const BOOT: [File; 6] = [
    unit("etc/systemd/system/longrun-boot-preload.service", shipped!("longrun-boot-preload.service")),
    unit("etc/systemd/system/longrun-boot-record.service", shipped!("longrun-boot-record.service")),
    hook("etc/initramfs-tools/hooks/longrun", INITRAMFS_TOOLS, shipped!("initramfs-hook")),
    hook("etc/initramfs-tools/scripts/init-bottom/longrun", INITRAMFS_TOOLS, shipped!("initramfs-script")),
    hook("usr/lib/dracut/modules.d/95longrun/module-setup.sh", DRACUT, shipped!("dracut-module-setup.sh")),
    hook("usr/lib/dracut/modules.d/95longrun/longrun.sh", DRACUT, shipped!("dracut-longrun.sh")),
];
/// The units that sysinit.target wants.
const WANTED: [&str; 2] = ["longrun-boot-preload.service", "longrun-boot-record.service"];
/// What makes a changed hook count.
const REMAKE: [(&str, &str); 2] = [(INITRAMFS_TOOLS, "update-initramfs -u"), (DRACUT, "dracut --force")];

/// Installs, and switches on.
pub fn enable(args: &InstallArgs) -> Result<(), Failure> {
    let root = open_root(&args.place, false)?;
    let at = &args.place.root;
    let mut done = String::new();
    let names = match &args.unit {
        None => {
            for file in BOOT.iter().filter(|file| at.join(file.needs).is_dir()) {
                put(&at.join(file.path), &with_program(file.text)?, file.mode)?;
            }
            let wants = at.join(UNITS).join("sysinit.target.wants");
            make(&wants)?;
            for unit in WANTED {
                link(&Path::new("..").join(unit), &wants.join(unit))?;
            }
            done += "the next boot is recorded, and read ahead as soon as something is known of it\n";
            for (_, command) in REMAKE.iter().filter(|(needs, _)| at.join(needs).is_dir()) {
                done +=
                    &format!("`{command}` lets it begin in the initramfs; without, it begins with the first units\n");
            }
            Names::boot()
        }
        Some(unit) => {
            let names = Names::of(unit)?;
            let volume = volume_in_unit(args)?;
            let text = with_program(shipped!("longrun-preload@.service"))?.replace("@VOLUME@", &volume);
            put(&at.join(UNITS).join(format!("longrun-preload@{unit}.service")), &text, 0o644)?;
            put(&drop_in(at, unit), &drop_in_text(unit), 0o644)?;
            done += &format!("{unit} is read ahead whenever it starts\n");
            names
        }
    };
    switch_on(args, &root, &names)?;
    reload(args);
    print(&done)
}

/// Removes what [`enable`] has installed.
pub fn disable(args: &InstallArgs) -> Result<(), Failure> {
    let root = open_root(&args.place, false)?;
    let at = &args.place.root;
    let mut names = Names::boot();
    match &args.unit {
        None => {
            for unit in WANTED {
                unlink(&at.join(UNITS).join("sysinit.target.wants").join(unit))?;
            }
            for file in &BOOT {
                remove(&at.join(file.path))?;
            }
            // Its directory, if nobody else has put something there.
            _ = fs::remove_dir(at.join("usr/lib/dracut/modules.d/95longrun"));
        }
        Some(unit) => {
            names = Names::of(unit)?;
            remove(&at.join(UNITS).join(format!("longrun-preload@{unit}.service")))?;
            let path = drop_in(at, unit);
            remove(&path)?;
            _ = path.parent().map(fs::remove_dir);
        }
    }
    if let Some(store) = Store::find(&root, &args.place.state)? {
        store.keep_plan(&names, None)?;
    }
    reload(args);
    print("nothing is recorded or read ahead any more; the lists stay\n")
}

/// Forgets why it was switched off, and plans anew if there is a list.
fn switch_on(args: &InstallArgs, root: &Root, names: &Names) -> Result<(), Failure> {
    let Some(store) = Store::find(root, &args.place.state)? else {
        return make(&args.place.root.join(args.place.state.strip_prefix("/").unwrap_or(&args.place.state)));
    };
    let mut history = store.history(names)?;
    if history.off.take().is_some() {
        // What it was judged by does not count again.
        history.runs.clear();
        store.keep_history(names, &history)?;
    }
    if store.list(names).ok().flatten().is_some() {
        let volume = volume(&args.place, root)?;
        replan(&store, names, &volume, order(&volume))?;
    }
    Ok(())
}

/// The text with the path of this program.
fn with_program(text: &str) -> Result<String, Failure> {
    let program =
        std::env::current_exe().map_err(|error| Failure::io(Path::new(PROGRAM), "finding this program", &error))?;
    let plain = |path: &str| path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+".contains(&byte));
    match program.to_str().filter(|path| plain(path)) {
        Some(path) => Ok(text.replace(PROGRAM, path)),
        None => Err(Failure::new(
            Status::Refused,
            format!(
                "{}: the path of this program has characters that units cannot have; install it elsewhere",
                program.display()
            ),
        )),
    }
}

/// The directory of the volume, as a unit names it.
fn volume_in_unit(args: &InstallArgs) -> Result<String, Failure> {
    let volume = args.place.volume.clone().unwrap_or_else(|| PathBuf::from("/"));
    let plain = |path: &str| {
        path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+@:".contains(&byte))
    };
    volume.to_str().filter(|path| plain(path)).map(str::to_owned).ok_or_else(|| {
        let text =
            format!("{}: name the volume by an absolute path of letters, digits and / . _ - + @ :", volume.display());
        Failure::new(Status::Usage, text)
    })
}

fn drop_in(at: &Path, unit: &str) -> PathBuf {
    at.join(UNITS).join(format!("{unit}.d")).join("50-longrun-preload.conf")
}

fn drop_in_text(unit: &str) -> String {
    format!(
        "{OURS}has what the service will need read ahead while it starts. Made by `longrun boot enable --unit`, removed by `disable`.\n\
         [Unit]\nWants=longrun-preload@{unit}.service\n"
    )
}

fn make(directory: &Path) -> Result<(), Failure> {
    fs::create_dir_all(directory).map_err(|error| Failure::io(directory, "making the directory", &error))
}

/// Writes a file of ours, unless another one is there.
fn put(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    if is_foreign(path) {
        let text = format!("{}: it is there already and not of Longrun; nothing was changed in it", path.display());
        return Err(Failure::new(Status::Refused, text));
    }
    if let Some(directory) = path.parent() {
        make(directory)?;
    }
    crate::fresh::write(path, |file| {
        io::Write::write_all(file, text.as_bytes())?;
        file.set_permissions(Permissions::from_mode(mode))
    })
    .map_err(|error| Failure::io(path, "writing it", &error))
}

fn is_foreign(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok() && !fs::read_to_string(path).is_ok_and(|text| text.contains(OURS))
}

fn remove(path: &Path) -> Result<(), Failure> {
    if is_foreign(path) { Ok(()) } else { unlink(path) }
}

fn unlink(path: &Path) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Failure::io(path, "removing it", &error)),
        _ => Ok(()),
    }
}

fn link(to: &Path, path: &Path) -> Result<(), Failure> {
    match symlink(to, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(Failure::io(path, "making the link", &error)),
        _ => Ok(()),
    }
}

/// Has systemd read its units again, where it runs and it is its system.
fn reload(args: &InstallArgs) {
    if args.place.root == Path::new("/") && Path::new("/run/systemd/system").is_dir() {
        let done = Command::new("systemctl").arg("daemon-reload").status();
        if !done.is_ok_and(|status| status.success()) {
            say("systemctl daemon-reload failed; the change counts from the next boot on");
        }
    }
}
