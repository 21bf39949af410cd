//! Writing a file atomically: as a new file beside its place, which is then renamed.
//!
//! Ensures that root never writes through a link that another user has placed in the directory, and that no one sees an
//! incomplete file. Never replaces anything but a regular file.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Lets `fill` write the content of the file at `path`.
pub fn write(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(there) if !there.is_file() => {
            return Err(io::Error::other("it exists and is not a regular file; choose another name"));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(beside);
    // O_EXCL: an existing file or link is not opened.
    let mut file = File::create_new(&beside)?;
    let written = fill(&mut file).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // The incomplete file is removed. The user sees the first error, not one of the removal.
        _ = fs::remove_file(&beside);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_replaced_whole_and_a_link_is_never_followed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let put = |name: &str, text: &str| write(&at(name), |file| file.write_all(text.as_bytes()));
        put("picture", "old and long").unwrap();
        put("picture", "new").unwrap();
        assert_eq!(fs::read_to_string(at("picture")).unwrap(), "new");

        fs::write(at("victim"), "precious").unwrap();
        for target in ["victim", "nowhere"] {
            symlink(at(target), at("link")).unwrap();
            assert!(put("link", "x").unwrap_err().to_string().contains("not a regular file"));
            fs::remove_file(at("link")).unwrap();
        }
        symlink(at("victim"), at(&format!(".late.{}", std::process::id()))).unwrap();
        assert_eq!(put("late", "x").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(at("victim")).unwrap(), "precious");

        let failed = write(&at("picture"), |_| Err(io::Error::other("no more")));
        assert_eq!(failed.unwrap_err().to_string(), "no more");
        assert_eq!(fs::read_to_string(at("picture")).unwrap(), "new");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3, "picture, victim and the link");
    }
}
