//! `completions` and `man`: made from the same description of the command line that parses it, so that they cannot lie.

use crate::args::Cli;
use crate::exit::Failure;
use crate::report::print;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use std::fs;
use std::path::Path;

/// Prints the completion script.
pub fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "longrun", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Writes `longrun.1` and a page for each command into `directory`.
pub fn man(directory: &Path) -> Result<(), Failure> {
    let mut command = Cli::command();
    command.build();
    let mut pages = vec![page(&command, "longrun".to_owned())];
    pages.extend(command.get_subcommands().map(|sub| page(sub, format!("longrun-{}", sub.get_name()))));
    for (name, content) in pages {
        let path = directory.join(format!("{name}.1"));
        let content = content.map_err(|e| Failure::io(&path, "making the page", &e))?;
        fs::write(&path, content).map_err(|e| Failure::io(&path, "writing", &e))?;
    }
    print(&format!("Manual pages written to {}\n", crate::text::printable_path(directory)))
}

fn page(command: &Command, name: String) -> (String, std::io::Result<Vec<u8>>) {
    let mut content = Vec::new();
    let written = clap_mangen::Man::new(command.clone()).render(&mut content);
    (name, written.map(|()| content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_gets_its_page() {
        let directory = tempfile::tempdir().unwrap();
        man(directory.path()).unwrap();
        let mut names: Vec<String> = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let mut expected =
            ["", "-analyze", "-completions", "-fragment", "-man", "-map", "-optimize"].map(|n| format!("longrun{n}.1"));
        expected.sort();
        assert_eq!(names, expected);
        let page = fs::read_to_string(directory.path().join("longrun-optimize.1")).unwrap();
        assert!(page.contains("longrun\\-optimize") && page.contains("budget"), "{page}");
    }

    #[test]
    fn a_missing_directory_is_named() {
        let failure = man(Path::new("/nonexistent/man1")).unwrap_err().to_string();
        assert!(failure.starts_with("/nonexistent/man1/longrun.1: writing failed"), "{failure}");
    }
}
