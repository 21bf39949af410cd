//! What the tools of ntfs-3g report about an NTFS image, and whether it can still be used.
//!
//! Owns calling them and understanding what they print. [`check`] and the questions never write; [`then_usable`] does.

use crate::ntfs::{Access, AttributeKind, AttributeName, Mounted, check_records, fragments_of};
use crate::tool;
use anyhow::{Context, Result, bail, ensure};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Existing files that [`then_usable`] touches.
const TOUCHED: usize = 12;

/// Which file to ask about.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// By the number of its MFT record: 0 is $MFT.
    Record(u64),
    /// By its path from the root; ASCII only, for the tools do not agree about other names.
    Path(&'a str),
}

/// Fails unless every checker finds the volume clean: ntfsresize, ntfsfix, ntfsck where it is installed, and a comparison
/// of our own of what MFT records say twice, for what the first two do not look for. The image is not written to.
///
/// # Errors
/// With what the first unsatisfied checker printed.
pub fn check(image: &Path) -> Result<()> {
    judge("ntfsresize", &["--info", "--force", "--no-progress-bar"], image)?;
    judge("ntfsfix", &["--no-action"], image)?;
    // What follows finds damage that they do not look for.
    check_records(image)?;
    // Part of ntfsprogs-plus, which no distribution of ours packages.
    if installed("ntfsck") {
        judge("ntfsck", &["-n"], image)?;
    }
    Ok(())
}

fn judge(checker: &str, arguments: &[&str], image: &Path) -> Result<()> {
    let mut command = Command::new(checker);
    command.args(arguments).arg(image);
    let output = tool::output(&mut command)?;
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat();
    // Some of what they find does not change their status.
    let complaint = said.lines().find(|line| COMPLAINTS.iter().any(|complaint| line.contains(complaint)));
    if !output.status.success() || complaint.is_some() {
        bail!("the volume is not clean: {}", tool::describe(&command, &output));
    }
    Ok(())
}

/// Words in what the checkers print when something is wrong.
const COMPLAINTS: [&str; 6] = ["FAILED", "ERROR", "Error", "ailed", "orrupt", "mismatch"];

fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Whether the volume is marked as dirty: Windows checks it at the next start, and the kernel does not write to it.
///
/// # Errors
/// When ntfsinfo does not tell.
pub fn is_dirty(image: &Path) -> Result<bool> {
    const DIRTY: u16 = 1;
    let text = tool::run("ntfsinfo", ["--force".as_ref(), "--mft".as_ref(), image.as_os_str()])?;
    let flags = text.lines().find_map(|line| line.trim().strip_prefix("Volume Flags: 0x"));
    // Further words may follow the number.
    let number = flags.and_then(|flags| flags.split_whitespace().next()).and_then(|n| u16::from_str_radix(n, 16).ok());
    Ok(number.with_context(|| format!("ntfsinfo does not tell the flags of the volume:\n{text}"))? & DIRTY != 0)
}

/// The runs of each attribute of a file that is not resident, by ntfsinfo: first cluster on the volume and count; holes
/// are left out.
///
/// # Errors
/// When there is no such file, or ntfsinfo prints what cannot be understood.
pub fn runs(image: &Path, place: Place<'_>) -> Result<BTreeMap<AttributeName, Vec<(u64, u64)>>> {
    let mut command = Command::new("ntfsinfo");
    command.args(["--force", "--verbose"]);
    match place {
        Place::Record(number) => command.args(["--inode", &number.to_string()]),
        Place::Path(path) => command.args(["--file", &format!("/{path}")]),
    };
    command.arg(image);
    let output = tool::output(&mut command)?;
    let text = String::from_utf8_lossy(&output.stdout);
    // It prints what it could open, and ends successfully, when a file does not exist.
    if !output.status.success() || !text.contains("End of inode reached") {
        bail!("ntfsinfo does not know {place:?}: {}", tool::describe(&command, &output));
    }
    parse_runs(&text)
}

/// The fragments of each attribute of a file that is not resident, by ntfsinfo. Holes neither count nor separate.
///
/// # Errors
/// As [`runs`].
pub fn fragments(image: &Path, place: Place<'_>) -> Result<BTreeMap<AttributeName, usize>> {
    let runs = runs(image, place)?;
    Ok(runs.into_iter().map(|(name, runs)| (name, fragments_of(runs))).collect())
}

fn parse_runs(text: &str) -> Result<BTreeMap<AttributeName, Vec<(u64, u64)>>> {
    let mut found: BTreeMap<AttributeName, Vec<(u64, u64)>> = BTreeMap::new();
    let mut name = AttributeName::content();
    let mut in_runs = false;
    for line in text.lines() {
        if let Some(attribute) = line.strip_prefix("Dumping attribute ") {
            let kind = attribute.split_once("(0x").and_then(|(_, rest)| rest.split_once(')'));
            let kind = kind.and_then(|(number, _)| u32::from_str_radix(number, 16).ok());
            name =
                AttributeName::new(AttributeKind(kind.with_context(|| format!("which attribute is {line:?}?"))?), "");
            in_runs = false;
        } else if let Some(quoted) = line.trim().strip_prefix("Attribute name:") {
            quoted.trim().trim_matches('\'').clone_into(&mut name.name);
        } else if line.trim().starts_with("Runlist:") {
            in_runs = true;
            found.entry(name.clone()).or_default();
        } else if in_runs && line.starts_with("\t\t\t0x") {
            let run: Vec<&str> = line.split_whitespace().collect();
            let [_, first, count] = run[..] else { bail!("which run is {line:?}?") };
            if first == "<HOLE>" || first == "<RL_NOT_MAPPED>" {
                continue;
            }
            let number = |text: &str| text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
            let run = number(first).zip(number(count)).with_context(|| format!("which run is {line:?}?"))?;
            found.entry(name.clone()).or_default().push(run);
        } else {
            in_runs = false;
        }
    }
    Ok(found)
}

/// Uses the volume as its owner would: writes, grows, renames and deletes files through ntfs-3g, reads everything back,
/// and checks it again. The image is changed: give a copy.
///
/// # Errors
/// What could not be done, or what the checkers find afterwards.
pub fn then_usable(image: &Path) -> Result<()> {
    let mounted = Mounted::new(image, Access::Write)?;
    let expected = work(&mounted.root()).context("the volume cannot be used")?;
    mounted.unmount()?;
    check(image).context("after it was used")?;
    let mounted = Mounted::new(image, Access::Read)?;
    for (path, content) in expected {
        let found = fs::read(mounted.root().join(&path)).ok();
        ensure!(found == content, "{} was not found as it had been left", path.display());
    }
    mounted.unmount()
}

/// What must be where afterwards: the content, or nothing.
type Expected = BTreeMap<PathBuf, Option<Vec<u8>>>;

fn work(root: &Path) -> Result<Expected> {
    const BYTES: usize = 1 << 20;
    let (mut rng, mut expected) = (Rng::with_seed(7), Expected::new());
    let mut files = Vec::new();
    collect(root, &mut files)?;
    rng.shuffle(&mut files);
    // Deleted first: a full volume has room then.
    let mut files = files.into_iter();
    for path in files.by_ref().take(TOUCHED) {
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        expected.insert(path.strip_prefix(root)?.to_owned(), None);
    }
    let mut bytes = vec![0; BYTES];
    rng.fill(&mut bytes);
    let directory = root.join("used afterwards");
    fs::create_dir(&directory)?;
    for number in 0..TOUCHED {
        let path = directory.join(format!("new-{number}"));
        let content = bytes.get(..BYTES >> number).unwrap_or_default();
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        let renamed = directory.join(format!("a new file with a longer name, number {number}"));
        fs::rename(&path, &renamed)?;
        expected.insert(path.strip_prefix(root)?.to_owned(), None);
        expected.insert(renamed.strip_prefix(root)?.to_owned(), Some(content.to_vec()));
    }
    for path in files.by_ref().take(TOUCHED) {
        let mut content = Vec::new();
        File::open(&path)?.read_to_end(&mut content)?;
        let more = bytes.get(..10_000).unwrap_or_default();
        let grown = File::options().append(true).open(&path).and_then(|mut file| file.write_all(more));
        grown.with_context(|| format!("cannot grow {}", path.display()))?;
        content.extend_from_slice(more);
        expected.insert(path.strip_prefix(root)?.to_owned(), Some(content));
    }
    for (number, path) in files.take(TOUCHED).enumerate() {
        let content = fs::read(&path)?;
        let renamed = directory.join(format!("moved-{number}"));
        fs::rename(&path, &renamed).with_context(|| format!("cannot rename {}", path.display()))?;
        expected.insert(path.strip_prefix(root)?.to_owned(), None);
        expected.insert(renamed.strip_prefix(root)?.to_owned(), Some(content));
    }
    Ok(expected)
}

/// Regular files with one name: what happens to another name must not surprise.
fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let mut entries = fs::read_dir(directory)?.collect::<std::io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let meta = fs::symlink_metadata(entry.path())?;
        if meta.is_dir() {
            collect(&entry.path(), files)?;
        } else if meta.is_file() && meta.nlink() == 1 {
            files.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_all_parts_of_an_attribute_are_put_together() {
        let text = "\
Dumping attribute $DATA (0x80) from mft record 64 (0x40)\n\
\tRunlist:\tVCN\t\tLCN\t\tLength\n\
\t\t\t0x0\t\t0x1600\t\t0x2\n\
\t\t\t0x2\t\t<HOLE>\t\t0xe\n\
\t\t\t0x10\t\t0x1602\t\t0x1\n\
Dumping attribute $DATA (0x80) from mft record 72 (0x48)\n\
\tRunlist:\tVCN\t\tLCN\t\tLength\n\
\t\t\t0x0\t\t<RL_NOT_MAPPED>\t0x11\n\
\t\t\t0x11\t\t0x20\t\t0x1\n\
Dumping attribute $DATA (0x80) from mft record 68 (0x44)\n\
\tAttribute name:\t\t 'str'\n\
\tRunlist:\tVCN\t\tLCN\t\tLength\n\
\t\t\t0x0\t\t0x30\t\t0x1\n\
End of inode reached\n";
        let runs = parse_runs(text).unwrap();
        assert_eq!(runs[&AttributeName::content()], [(0x1600, 2), (0x1602, 1), (0x20, 1)]);
        assert_eq!(runs[&AttributeName::new(AttributeKind::DATA, "str")], [(0x30, 1)]);
        assert_eq!(runs.into_values().map(fragments_of).collect::<Vec<_>>(), [2, 1]);
    }
}
