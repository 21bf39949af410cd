//! `longrun-lab kernels`: checks what works on the running kernel.

use crate::{all_unless, file_system};
use anyhow::Result;
use clap::Args;
use longrun_lab::{FileSystemKind, KernelSettings, Medium, kernel_checks};
use std::io::Write;

/// What to check.
#[derive(Args)]
pub(crate) struct KernelsArguments {
    /// Run only on these file systems: ext4, xfs, btrfs.
    #[arg(long, value_parser = file_system)]
    filesystem: Vec<FileSystemKind>,
    /// Use only these media: rotating, solid-state.
    #[arg(long, value_parser = medium)]
    medium: Vec<Medium>,
    /// Set the size of the volumes that are optimized, in MiB; btrfs volumes get twice that
    #[arg(long, default_value_t = 512)]
    mebibytes: u64,
    /// Seed the random numbers of the ageing.
    #[arg(long, default_value_t = 3)]
    seed: u64,
}

pub(crate) fn medium(name: &str) -> Result<Medium, String> {
    let found = Medium::ALL.into_iter().find(|medium| medium.name() == name);
    found.ok_or_else(|| "rotating or solid-state".to_owned())
}

/// Prints a line for each check when it ends.
pub(crate) fn run_kernels(arguments: KernelsArguments) -> Result<()> {
    let KernelsArguments { filesystem, medium, mebibytes, seed } = arguments;
    let kinds = all_unless(filesystem, &FileSystemKind::ALL);
    let settings = KernelSettings { kinds, media: all_unless(medium, &Medium::ALL), mebibytes, seed };
    kernel_checks(&settings, &mut |line| {
        // A closed standard output must not end the checks.
        _ = writeln!(std::io::stdout(), "{line}");
    })
}
