//! `completions` and `man`, generated from the definitions that parse the command line.

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
    let mut pages = Vec::new();
    add_pages(&command, "longrun".to_owned(), &mut pages);
    for (name, content) in pages {
        let path = directory.join(format!("{name}.1"));
        let content = content.map_err(|e| Failure::io(&path, "generating the page", &e))?;
        fs::write(&path, content).map_err(|e| Failure::io(&path, "writing", &e))?;
    }
    print(&format!("Manual pages written to {}\n", crate::text::printable_path(directory)))
}

type Page = (String, std::io::Result<Vec<u8>>);

/// Adds the page of a command and the pages of its subcommands.
fn add_pages(command: &Command, name: String, pages: &mut Vec<Page>) {
    let mut content = Vec::new();
    let written = clap_mangen::Man::new(command.clone()).render(&mut content);
    let within = command.get_subcommands().filter(|within| within.get_name() != "help");
    let within: Vec<(&Command, String)> =
        within.map(|within| (within, format!("{name}-{}", within.get_name()))).collect();
    pages.push((name, written.map(|()| content)));
    within.into_iter().for_each(|(within, name)| add_pages(within, name, pages));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_command_gets_its_page() {
        let directory = tempfile::tempdir().unwrap();
        man(directory.path()).unwrap();
        let names: BTreeSet<String> = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        for command in Cli::command().get_subcommands() {
            assert!(names.contains(&format!("longrun-{}.1", command.get_name())), "{names:?}");
        }
        for name in ["longrun.1", "longrun-optimize.1", "longrun-bench-prevention.1"] {
            assert!(names.contains(name), "{names:?}");
        }
        assert!(!names.iter().any(|name| name.contains("help")), "{names:?}");
        let page = fs::read_to_string(directory.path().join("longrun-optimize.1")).unwrap();
        assert!(page.contains("longrun\\-optimize") && page.contains("budget"), "{page}");
    }

    #[test]
    fn a_missing_directory_is_named() {
        let failure = man(Path::new("/nonexistent/man1")).unwrap_err().to_string();
        assert!(failure.starts_with("/nonexistent/man1/longrun.1: writing failed"), "{failure}");
    }
}
