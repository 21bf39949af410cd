//! Prints what the policy does for files that grow beside each other, in the model of the replay tests: the table by which
//! its parameters were chosen. `cargo run -p longrun-prevention --example runway_table`
#![allow(missing_docs, dead_code, clippy::print_stdout, clippy::unwrap_used, clippy::expect_used)]

#[path = "../tests/simulator/mod.rs"]
mod simulator;

use longrun_sys::FileSystem;
use simulator::{Condition, Load, Scenario};
use std::time::Duration;

fn main() {
    let gib = std::env::args().nth(1).and_then(|gib| gib.parse().ok());
    let total: u64 = gib.unwrap_or(8);
    println!("extents per file: without / with, and the share of the excess prevented; 8 × 64 MiB by 64 KiB");
    println!("| load | file system | free space | latency | without | with | prevented | claimed | held at most |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for load in [Load::Append, Load::Scattered] {
        for filesystem in [FileSystem::Xfs, FileSystem::Btrfs] {
            for condition in [Condition::Healthy, Condition::Holes, Condition::Runs, Condition::Dust] {
                for milliseconds in [1, 5, 50] {
                    for rounds in [1, 2] {
                        let latency = Duration::from_millis(milliseconds);
                        let total = longrun_layout::Bytes(total << 30);
                        let with = Scenario { total, load, rounds, ..Scenario::new(filesystem, condition, latency) };
                        let (without, with) = (with.without().run(), with.run());
                        let round = if rounds == 1 { "" } else { ", second files" };
                        println!(
                            "| {load:?} | {filesystem} | {condition:?} | {milliseconds} ms{round} | {:.1} | {:.1} | {:.2} % | {} of {} | {} MiB |",
                            without.per_file(),
                            with.per_file(),
                            with.prevented(&without),
                            with.claimed,
                            without.excess().saturating_sub(with.excess()),
                            with.held.0 >> 20,
                        );
                    }
                }
            }
        }
    }
}
