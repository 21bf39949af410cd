//! `longrun`: the command line.
//!
//! Owns arguments, reports, progress, pictures and exit statuses. Never touches a volume itself: that is the work of
//! `longrun-volume` and, for fragmentation on purpose, of `longrun-ageing`.

mod args;
mod commands;
mod exit;
mod fresh;
mod map;
mod progress;
mod report;
mod signals;
mod subvolumes;
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
            // Help and version come as "errors" too; only the real ones are a wrong use.
            _ = answer.print();
            return if answer.use_stderr() { Status::Usage } else { Status::Done }.into();
        }
    };
    match run(&cli.command) {
        Ok(()) => Status::Done.into(),
        Err(failure) => {
            _ = writeln!(io::stderr(), "longrun: {failure}");
            failure.status.into()
        }
    }
}

fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Analyze(args) => commands::analyze::run(args),
        Command::Optimize(args) => commands::optimize::run(args),
        Command::Map(args) => commands::map::run(args),
        Command::Fragment(args) => commands::fragment::run(args),
        Command::Prevent(args) => commands::prevent::run(args),
        Command::Bench(benchmark) => commands::bench::run(benchmark),
        Command::Trace(args) => commands::trace::run(args),
        Command::Report(args) => commands::report::run(args),
        Command::Daemon(args) => commands::daemon::run(args),
        Command::Status(args) => commands::status::run(args),
        Command::Top(args) => top::run(args),
        Command::Config(what) => commands::config::run(what),
        Command::Completions { shell } => commands::papers::completions(*shell),
        Command::Man { directory } => commands::papers::man(directory),
    }
}
