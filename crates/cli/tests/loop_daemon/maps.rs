//! Maps on real volumes: what the API tells of a block is what `longrun map --at` tells, which reads the volume anew.

use super::common::{check, longrun};
use super::service::{PATIENCE, Service, of};
use longrun_lab::{FileSystemKind, LoopVolume, VolumeSpec, write_in_pieces};
use longrun_layout::Bytes;
use serde_json::Value;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// One request by hand: status, head and body.
fn get(socket: &Path, path: &str, header: &str) -> (u16, String, Vec<u8>) {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{header}\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let body = answer.split_off(end + 4);
    let head = String::from_utf8(answer).unwrap().to_lowercase();
    (head[9..12].parse().unwrap(), head, body)
}

/// A volume with files in pieces, directories, holes in the free space and, where it can, files that share blocks.
fn furnished(kind: FileSystemKind) -> LoopVolume {
    let size = match kind {
        FileSystemKind::Ext4 => 128,
        FileSystemKind::Xfs => 320,
        FileSystemKind::Btrfs => 256,
    };
    let mkfs: &[&str] = match kind {
        FileSystemKind::Ext4 => &["-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
        _ => &[],
    };
    let volume = LoopVolume::create(&VolumeSpec::of(kind, size).mkfs(mkfs).mount("noatime")).unwrap();
    let top = volume.mount_point();
    let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 5) as u8).collect();
    for (number, piece) in [(1, 16 << 10), (2, 64 << 10), (3, 256 << 10)] {
        let directory = top.join(format!("directory-{number}/below"));
        fs::create_dir_all(&directory).unwrap();
        write_in_pieces(kind, &directory.join("in pieces"), &content, Bytes(piece), number).unwrap();
        for small in 0..200 {
            fs::write(directory.join(format!("small-{small}")), &content[..small * 97 + 1]).unwrap();
        }
        (0..200).step_by(3).for_each(|small| fs::remove_file(directory.join(format!("small-{small}"))).unwrap());
    }
    longrun_sys::sync_volume(fs::File::open(&top).unwrap()).unwrap();
    volume
}

/// The words of `map --at` for what the API says.
fn in_words(owner: &Value, block_size: u64) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match owner["kind"].as_str().unwrap() {
        "free" => vec!["free; ".to_owned()],
        "metadata" => vec![format!("metadata: {}", text(&owner["area"]))],
        "unknown" => vec!["in use".to_owned()],
        kind => {
            let file = &owner["file"];
            let path = file["path"].as_str().unwrap_or_else(|| panic!("{owner:#}"));
            let logical = owner["logical"].as_u64().unwrap();
            let part = match file["subvolume"].as_u64() {
                Some(_) => format!("\n  its byte {},", logical * block_size),
                None => format!("\n  its block {logical}\n"),
            };
            vec![format!("{kind} {path}\n  inode {}", file["inode"]), part]
        }
    }
}

#[test]
fn loop_every_block_has_the_owner_that_map_tells() {
    for kind in FileSystemKind::ALL {
        let volume = furnished(kind);
        let mount = volume.mount_point();
        let mut service = Service::start(std::slice::from_ref(&mount));
        let status = service.wait(|status| of(status, &mount).is_some_and(|volume| volume["id"].is_string()));
        let base = format!("/v1/volumes/{}", of(&status, &mount).unwrap()["id"].as_str().unwrap());
        let socket = service.path("socket");
        let ask = |path: &str| {
            let (status, _, body) = get(&socket, &format!("{base}{path}"), "");
            assert!(body.len() <= 256 << 10, "{kind:?}: {path} has {} bytes", body.len());
            (status, serde_json::from_slice::<Value>(&body).unwrap_or(Value::Null))
        };
        assert_eq!(ask("/map/levels").0, 404, "{kind:?}: there is no map before a scan");
        assert_eq!(service.ask("POST", &format!("{base}/analyze")).0, 202, "{kind:?}");
        service.wait(|status| of(status, &mount).is_some_and(|volume| volume["scan"]["files"].as_u64() > Some(0)));

        let (status, levels) = ask("/map/levels");
        assert_eq!(status, 200, "{kind:?}: {levels:#}");
        let (total, block_size) = (levels["total_blocks"].as_u64().unwrap(), levels["block_size"].as_u64().unwrap());
        let last = levels["levels"].as_array().unwrap().last().unwrap();
        assert_eq!(last["cells"], 1, "{kind:?}: {levels:#}");
        let (_, head, cells) = get(&socket, &format!("{base}/map?level=0&from=1&count=100"), "");
        assert_eq!(cells.len(), 400, "{kind:?}: {head}");
        let tag = format!("\"{}\"", levels["scan"]["number"]);
        assert!(head.contains(&format!("etag: {tag}")) && head.contains("longrun-scan-age: "), "{kind:?}: {head}");
        let again = format!("if-none-match: {tag}\r\n");
        for path in ["/map/levels", "/map?level=0", "/extents?from=0&to=100", "/owner?block=7"] {
            let (status, _, body) = get(&socket, &format!("{base}{path}"), &again);
            assert_eq!((status, body.len()), (304, 0), "{kind:?}: {path}");
        }

        // Of all pieces, and of the blocks of files in particular.
        let (mut pieces, mut from) = (Vec::new(), Some(0));
        while let Some(start) = from {
            let (status, extents) = ask(&format!("/extents?from={start}&to={total}"));
            assert_eq!(status, 200, "{kind:?}: {extents:#}");
            let column =
                |name: &str| extents[name].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect::<Vec<_>>();
            let (starts, blocks, kinds) = (column("start"), column("blocks"), column("kind"));
            pieces.extend(starts.into_iter().zip(blocks).zip(kinds));
            from = extents["next"].as_u64();
        }
        assert!(pieces.windows(2).all(|pair| pair[0].0.0 + pair[0].0.1 <= pair[1].0.0), "{kind:?}");
        assert_eq!(pieces.len() as u64, levels["pieces"].as_u64().unwrap(), "{kind:?}");
        let of_files: Vec<_> = pieces.iter().filter(|(_, kind)| *kind == 1).map(|(extent, _)| *extent).collect();
        assert!(of_files.len() > 200, "{kind:?}: {}", of_files.len());

        let mut seed = 17_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut kinds = std::collections::BTreeSet::new();
        for number in 0..100 {
            let block = if number % 2 == 0 {
                random(total)
            } else {
                let (start, blocks) = of_files[usize::try_from(random(of_files.len() as u64)).unwrap()];
                start + random(blocks)
            };
            let (status, owner) = ask(&format!("/owner?block={block}"));
            assert_eq!(status, 200, "{kind:?}: {owner:#}");
            let told =
                check(&longrun([Path::new("map"), &mount, Path::new("--at"), Path::new(&block.to_string())]), 0, "");
            let told = told.strip_prefix(&format!("block {block}: ")).unwrap();
            for words in in_words(&owner, block_size) {
                let is_there = if words.starts_with('\n') { told.contains(&words) } else { told.starts_with(&words) };
                assert!(is_there, "{kind:?}, block {block}: {words:?} is not in {told:?}\n{owner:#}");
            }
            kinds.insert(owner["kind"].as_str().unwrap().to_owned());
        }
        assert!(["free", "file"].iter().all(|kind| kinds.contains(*kind)), "{kind:?}: {kinds:?}");

        // A file by its path and by its number.
        let path = mount.join("directory-2/below/in pieces");
        let (status, file) = ask(&format!("/file?path={}", path.display().to_string().replace(' ', "%20")));
        assert_eq!(status, 200, "{kind:?}: {file:#}");
        assert!(file["file"]["fragments"].as_u64() > Some(5), "{kind:?}: {file:#}");
        let blocks: u64 = file["blocks"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(
            (blocks, file["file"]["blocks"].as_u64().unwrap()),
            (3_000_000_u64.div_ceil(block_size), blocks),
            "{kind:?}"
        );
        let (_, same) = ask(&format!("/file?file={}", file["file"]["number"]));
        assert_eq!((&same["file"]["path"], &same["start"]), (&file["file"]["path"], &file["start"]), "{kind:?}");

        for (path, expected) in [
            ("/map?level=99", 400),
            ("/map?level=0&count=65537", 400),
            ("/map?level=0&from=99999999999", 400),
            ("/map", 400),
            ("/map?level=-1", 400),
            ("/extents?from=5&to=5", 400),
            (&format!("/extents?from={total}&to={}", u64::MAX), 400),
            ("/owner", 400),
            (&format!("/owner?block={total}"), 400),
            ("/owner?block=x", 400),
            ("/file", 400),
            ("/file?path=relative", 400),
            ("/file?path=/&file=1", 400),
            ("/file?file=4000000000", 400),
            ("/file?path=/proc/self/stat", 404),
            ("/file?path=/none", 404),
            ("/file?path=/%00", 404),
        ] {
            let (status, problem) = ask(path);
            assert_eq!(status, expected, "{kind:?}: {path}: {problem:#}");
            assert!(problem["error"].as_str().is_some_and(|text| text.len() > 5), "{kind:?}: {path}: {problem:#}");
        }

        // What is damaged is told, and replaced.
        let map = fs::read_dir(service.path("state/maps")).unwrap().next().unwrap().unwrap().path();
        let mut bytes = fs::read(&map).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle..].fill(0x55);
        fs::write(&map, &bytes).unwrap();
        assert_eq!(ask("/map/levels").0, 503, "{kind:?}");
        assert_eq!(service.ask("POST", &format!("{base}/analyze")).0, 202, "{kind:?}");
        let end = std::time::Instant::now() + PATIENCE;
        while ask("/map/levels").0 != 200 {
            assert!(std::time::Instant::now() < end, "{kind:?}: {}", service.log());
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        service.stop("TERM");
        volume.unmount().unwrap();
    }
}
