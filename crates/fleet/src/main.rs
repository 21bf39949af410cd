//! The command line of `longrun-fleet`, which `longrun fleet` starts.

mod commands;

use clap::{Args, Parser, Subcommand};
use longrun_fleet::broker::{Broker, BrokerError};
use longrun_fleet::host_config::{self, HostConfig, HostConfigError};
use longrun_fleet::lease::{GroupLimits, Term, today};
use longrun_fleet::names::Name;
use longrun_fleet::{agent, console, show};
use serde::Serialize;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// How long an administrator's command waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Many hosts, one policy, and storage that they share
///
/// Hosts meet at a NATS server with JetStream. The agent runs on each host, without privilege, and tells the service of
/// Longrun what is permitted. Everything else is for administrators, on any machine that reaches the server.
#[derive(Debug, Parser)]
#[command(name = "longrun-fleet", bin_name = "longrun fleet", version)]
struct Arguments {
    /// Read how this host is called, and how it reaches the server, from this file
    #[arg(long, global = true, value_name = "FILE", default_value = host_config::DEFAULT_PATH)]
    config: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Take part in the fleet: run as a service on each host (longrun-fleet.service)
    Agent(AgentArguments),
    /// Show who holds the leases of each storage group
    Leases {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the storage groups with their limits, or set the limits of one
    Groups {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(subcommand)]
        action: Option<GroupsAction>,
    },
    /// Serve the fleet to the console of longrun-web on this machine
    Console(console::Options),
    /// Make the buckets of the fleet at the server, where they are missing
    MakeBuckets {
        /// Keep them on so many servers of a cluster
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
        replicas: u8,
    },
    #[command(flatten)]
    Administration(commands::Administration),
}

#[derive(Debug, Args)]
struct AgentArguments {
    /// Take the term of leases for so many seconds, on all hosts alike (tests use short ones)
    #[arg(long, hide = true, default_value_t = 60.0)]
    term: f64,
}

#[derive(Debug, Subcommand)]
enum GroupsAction {
    /// Set the limits of a group; what is not given has its default
    Set {
        /// The storage group, as `longrun status` of a host names it
        group: Name,
        /// Let so many hosts work at a time (0: none); default: 1 where disks rotate, else 2
        #[arg(long)]
        slots: Option<u16>,
        /// Let the hosts of the group move at most so many bytes on a day (UTC)
        #[arg(long, value_name = "BYTES")]
        bytes_per_day: Option<u64>,
        /// Let a host give way while it sees a latency of the storage above so many microseconds
        #[arg(long, value_name = "MICROSECONDS")]
        latency_limit: Option<f64>,
    },
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error(transparent)]
    Config(#[from] HostConfigError),
    #[error("--term: use a number of seconds between 0.5 and 3600")]
    Term,
    #[error(transparent)]
    Agent(#[from] agent::AgentError),
    #[error(transparent)]
    Broker(#[from] BrokerError),
    #[error(transparent)]
    Console(#[from] console::ConsoleError),
    #[error(transparent)]
    Administration(#[from] commands::AdministrationError),
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,async_nats=error"));
    tracing_subscriber::fmt().with_writer(io::stderr).with_env_filter(filter).without_time().with_target(false).init();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.map_err(CommandError::from).and_then(|runtime| runtime.block_on(run(arguments)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Who reads no more wants no more.
        Err(CommandError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(Arguments { config, command }: Arguments) -> Result<(), CommandError> {
    let command = match command {
        Command::Administration(command) => return Ok(commands::run(command, &config).await?),
        other => other,
    };
    let config_path = config;
    let config = HostConfig::read(&config_path)?;
    match command {
        Command::Agent(AgentArguments { term }) => {
            let term = Some(term).filter(|term| (0.5..=3600.0).contains(term)).ok_or(CommandError::Term)?;
            agent::run(&config, Term::of(Duration::from_secs_f64(term))).await?;
        }
        Command::Leases { json } => {
            let leases = show::leases(&connect(&config).await?).await?;
            print(json, &leases, &show::lease_table(&leases))?;
        }
        Command::Groups { json, action: None } => {
            let groups = show::groups(&connect(&config).await?).await?;
            print(json, &groups, &show::group_table(&groups, today()))?;
        }
        Command::Groups { action: Some(GroupsAction::Set { group, slots, bytes_per_day, latency_limit }), .. } => {
            let limits = GroupLimits { slots, bytes_per_day, latency_limit_us: latency_limit };
            show::set_limits(&connect(&config).await?, &group, limits).await?;
        }
        Command::Console(options) => console::run(&config, &config_path, options).await?,
        Command::MakeBuckets { replicas } => connect(&config).await?.make_buckets(replicas.into()).await?,
        Command::Administration(_) => {}
    }
    Ok(())
}

async fn connect(config: &HostConfig) -> Result<Broker, BrokerError> {
    let broker = Broker::connect(config, PATIENCE).await?;
    broker.connected_within(PATIENCE).await?;
    Ok(broker)
}

fn print<T: Serialize>(json: bool, value: &T, text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json { writeln!(out, "{}", serde_json::to_string_pretty(value)?) } else { write!(out, "{text}") }
}
