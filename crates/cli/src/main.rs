//! `longrun`: the command line.
//!
//! Owns arguments, reports, progress, pictures and exit statuses. Never changes a volume itself: `longrun-volume` does,
//! and `longrun-ageing` for fragmentation on purpose.

mod args;
mod commands;
mod exit;
mod fresh;
mod map;
mod progress;
mod report;
mod signals;
mod survey;
mod text;
mod top;

use args::{Cli, Command};
use clap::Parser as _;
use exit::{Failure, Status};
use std::io::{self, Write};
use std::process::ExitCode;

/// The one place where the process ends.
fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => {
            // clap returns help and version as errors, too; only the others are wrong usage.
            _ = answer.print();
            return if answer.use_stderr() { Status::Usage } else { Status::Done }.into();
        }
    };
    match run(&cli.command) {
        Ok(()) => Status::Done.into(),
        Err(failure) => {
            _ = io::stderr().write_all(format!("longrun: {failure}\n").as_bytes());
            failure.status.into()
        }
    }
}

fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Analyze(args) => commands::analyze::run(args),
        Command::Optimize(args) => commands::optimize::run(args),
        Command::Reclaim(args) => commands::reclaim::run(args),
        Command::Map(args) => commands::map::run(args),
        Command::Images(args) => commands::images::run(args),
        Command::Fragment(args) => commands::fragment::run(args),
        Command::Prevent(args) => commands::prevent::run(args),
        Command::Bench(benchmark) => commands::bench::run(benchmark),
        Command::Trace(args) => commands::trace::run(args),
        Command::Profile(args) => commands::profile::run(args),
        Command::Heat(args) => commands::heat::run(args),
        Command::Boot(what) => commands::boot::run(what),
        Command::Report(args) => commands::report::run(args),
        Command::Daemon(args) => commands::daemon::run(args),
        Command::Status(args) => commands::status::run(args),
        Command::Top(args) => top::run(args),
        Command::Fleet(args) => commands::fleet::run(&args.args),
        Command::Job => commands::job::run(),
        Command::Config(what) => commands::config::run(what),
        Command::Completions { shell } => commands::generated::completions(*shell),
        Command::Man { directory } => commands::generated::man(directory),
    }
}
