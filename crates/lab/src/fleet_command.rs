//! `longrun-lab fleet` and `roll-out`: leases of a fleet under faults, and its policy.

use anyhow::Result;
use clap::Args;
use longrun_lab::fleet::roll_out;
use longrun_lab::{FleetSettings, fleet};
use std::io::Write as _;
use std::time::Duration;

/// What to do.
#[derive(Args)]
pub(crate) struct FleetArguments {
    /// Seed the random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run so many hosts.
    #[arg(long, default_value_t = 200)]
    agents: usize,
    /// Have them share so many storage groups.
    #[arg(long, default_value_t = 10)]
    groups: usize,
    /// Run so many brokers: 1, or 3 as a cluster. Default: one campaign with each.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=3))]
    brokers: Vec<u8>,
    /// Take the term of leases for so many seconds.
    #[arg(long, default_value_t = 4.0)]
    term: f64,
    /// End each campaign after so many seconds at the latest.
    #[arg(long, default_value_t = 3600)]
    seconds: u64,
    /// End each campaign after so many grants.
    #[arg(long, default_value_t = 10_000)]
    grants: u64,
    /// Make the networks name spaces of the kernel, and unplug their cables, too (root).
    #[arg(long)]
    name_spaces: bool,
}

/// Runs the campaigns, and prints what was seen.
pub(crate) fn run_fleet(arguments: FleetArguments) -> Result<()> {
    let FleetArguments { seed, agents, groups, brokers, term, seconds, grants, name_spaces } = arguments;
    let mut out = std::io::stdout();
    for brokers in crate::all_unless(brokers, &[1, 3]) {
        let settings = FleetSettings {
            seed,
            agents,
            groups,
            brokers: brokers.into(),
            term: Duration::from_secs_f64(term),
            time: Duration::from_secs(seconds),
            grants,
            name_spaces,
        };
        let report = fleet(&settings, &mut |count| eprintln!("{count} grants"))?;
        anyhow::ensure!(
            report.longest_wait_terms <= 2.0,
            "a slot was granted {} terms after its holder was killed",
            report.longest_wait_terms
        );
        writeln!(
            out,
            "brokers: {brokers}, seed {seed}: never more hosts than slots\n{}",
            serde_json::to_string_pretty(&report)?
        )?;
    }
    Ok(())
}

/// How many services.
#[derive(Args)]
pub(crate) struct RollOutArguments {
    /// Run so many services, each with its agent.
    #[arg(long, default_value_t = 50)]
    hosts: usize,
    /// Take the term of leases for so many seconds; a quarter of it is between two looks at the policy.
    #[arg(long, default_value_t = 4.0)]
    term: f64,
}

/// Rolls out, and prints what was seen.
pub(crate) fn run_roll_out(arguments: &RollOutArguments) -> Result<()> {
    let term = Duration::from_secs_f64(arguments.term);
    let report = roll_out(arguments.hosts, term, &mut |what| eprintln!("{what}"))?;
    writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(&report)?)?;
    Ok(())
}
