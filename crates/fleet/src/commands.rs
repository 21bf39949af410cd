//! The administrator's commands for hosts, policy and reports.

use clap::Subcommand;
use longrun_fleet::broker::{Broker, BrokerError};
use longrun_fleet::enroll::{EnrollError, NewHost, Office};
use longrun_fleet::host_config::{HostConfig, HostConfigError};
use longrun_fleet::names::{Name, STATE};
use longrun_fleet::policy::apply::{self, PolicyError};
use longrun_fleet::policy::{Checked, Document, PolicyShown, Trial, document_text, rollout_text};
use longrun_fleet::{report, show};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// A command.
#[derive(Debug, Subcommand)]
pub enum Administration {
    /// Make an administrator's directory, and the buckets of the fleet once the server can be reached
    Init {
        /// The directory for the key, the configuration and the accounts for nats-server
        directory: PathBuf,
        /// Reach the server here: tls://NAME:4222
        #[arg(long)]
        server: String,
        /// Trust the certificates of this authority instead of those of the system
        #[arg(long, value_name = "FILE")]
        ca: Option<PathBuf>,
        /// Keep the buckets on so many servers of a cluster
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
        replicas: u8,
    },
    /// Make a key for a host, and the files that go to its /etc/longrun
    Enroll {
        /// What the host is called in the fleet
        host: Name,
        /// Let it take leases of this storage group (can be repeated)
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<Name>,
        /// Give it a label, by which rules of a policy choose it (can be repeated)
        #[arg(long = "label", value_name = "LABEL=VALUE", value_parser = label)]
        labels: Vec<(String, String)>,
        /// Replace the key and the groups of a host that is enrolled
        #[arg(long)]
        renew: bool,
    },
    /// Take a host's key away
    Revoke {
        /// The host
        host: Name,
    },
    /// List the hosts, with what they told last
    Hosts {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the fleet as a whole, and what needs attention
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Report what was prevented, mended and saved on all hosts
    Report {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Check, roll out, show and take back the policy
    #[command(subcommand)]
    Policy(PolicyCommand),
}

/// A command about policy.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Check a policy document, and show what it says
    Check {
        /// The document
        file: PathBuf,
        /// Show the settings of a host with this label only (can be repeated)
        #[arg(long = "label", value_name = "LABEL=VALUE", value_parser = label)]
        labels: Vec<(String, String)>,
        /// Print JSON: what it says, or what is wrong in which line
        #[arg(long, conflicts_with = "labels")]
        json: bool,
    },
    /// Roll out a policy document: canary hosts try it first, and a new alert on one of them takes it back
    Apply {
        /// The document
        file: PathBuf,
        #[command(flatten)]
        trial: Trial,
        /// Roll out without a trial
        #[arg(long)]
        all_at_once: bool,
    },
    /// Go on with a roll-out that was interrupted
    Resume {
        #[command(flatten)]
        trial: Trial,
    },
    /// Show the policy and how far it is rolled out
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Take the policy back: all hosts return to the version before
    Rollback {
        /// Why, for the record
        #[arg(long, default_value = apply::NO_REASON)]
        reason: String,
    },
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum AdministrationError {
    #[error(transparent)]
    Config(#[from] HostConfigError),
    #[error(transparent)]
    Broker(#[from] BrokerError),
    #[error(transparent)]
    Enroll(#[from] EnrollError),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("{path}: {source}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
}

/// Runs a command; `config_path` is of the administrator.
///
/// # Errors
/// [`AdministrationError`].
pub async fn run(command: Administration, config_path: &Path) -> Result<(), AdministrationError> {
    let office = Office::of(config_path);
    match command {
        Administration::Init { directory, server, ca, replicas } => {
            init(&directory, &server, ca.as_deref(), replicas).await
        }
        Administration::Enroll { host, groups, labels, renew } => {
            let config = HostConfig::read(config_path)?;
            let (groups, labels): (BTreeSet<Name>, BTreeMap<_, _>) =
                (groups.into_iter().collect(), labels.into_iter().collect());
            let new = NewHost {
                name: &host,
                groups: &groups,
                labels: &labels,
                server: &config.server,
                authority: config.ca.as_deref(),
                renew,
            };
            let bundle = office.enroll(&new)?;
            say(&format!(
                "Copy the files in {} to /etc/longrun of {host}: fleet.nk with mode 0640 and group longrun-fleet. \
                 They hold its key: remove them here afterwards.\n{RELOAD}",
                bundle.display()
            ))
        }
        Administration::Revoke { host } => {
            office.revoke(&host)?;
            if let Ok(broker) = crate::connect(&HostConfig::read(config_path)?).await {
                // Its state is no longer listed.
                broker.put_anyhow(STATE, host.as_str(), Vec::new()).await?;
            }
            say(&format!("{host} has no key any more.\n{RELOAD}"))
        }
        Administration::Policy(command) => policy(command, config_path).await,
        Administration::Hosts { json } => {
            let (hosts, _) = show::hosts(&connected(config_path).await?, &office).await?;
            Ok(crate::print(json, &hosts, &report::host_table(&hosts))?)
        }
        Administration::Status { json } => {
            let (hosts, rollout) = show::hosts(&connected(config_path).await?, &office).await?;
            let summary = report::summary(&hosts);
            let text = report::status_text(&summary, &hosts, rollout.as_ref());
            Ok(crate::print(json, &summary, &text)?)
        }
        Administration::Report { json } => {
            let (hosts, _) = show::hosts(&connected(config_path).await?, &office).await?;
            let report = report::report(&hosts);
            Ok(crate::print(json, &report, &report::report_text(&report))?)
        }
    }
}

const RELOAD: &str =
    "Then have nats-server read its accounts: `nats-server --signal reload`, twice with versions before 2.10.\n";

async fn init(directory: &Path, server: &str, ca: Option<&Path>, replicas: u8) -> Result<(), AdministrationError> {
    let path = Office::open(directory, server, ca)?;
    let config = HostConfig::read(&path)?;
    let accounts = directory.join(longrun_fleet::enroll::ACCOUNTS);
    match crate::connect(&config).await {
        Ok(broker) => {
            broker.make_buckets(replicas.into()).await?;
            say(&format!("The fleet is ready. Use --config {} with all other commands.\n", path.display()))
        }
        Err(BrokerError::NotConnected) => say(&format!(
            "The server cannot be reached yet. Put this into /etc/nats-server.conf:\n\n  accounts {{ include \"{}\" }}\n\n\
             start or reload nats-server with TLS and JetStream, and run this command again.\n",
            included(&accounts).display()
        )),
        Err(error) => Err(error.into()),
    }
}

/// The file as nats-server.conf in /etc names it: the server takes the path from the directory of its configuration, an absolute one too.
fn included(file: &Path) -> PathBuf {
    let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    match file.strip_prefix("/etc") {
        Ok(below) => below.to_owned(),
        Err(_) => Path::new("..").join(file.strip_prefix("/").unwrap_or(&file)),
    }
}

async fn policy(command: PolicyCommand, config_path: &Path) -> Result<(), AdministrationError> {
    match command {
        PolicyCommand::Check { file, labels, json } => {
            let parsed = Document::parse(&read(&file)?);
            if json {
                crate::print(true, &Checked::of(&parsed), "")?;
            }
            let document = parsed.map_err(PolicyError::Wrong)?;
            if json {
                return Ok(());
            }
            if labels.is_empty() {
                return say(&document_text(&document));
            }
            let settings = document.settings_for(&labels.into_iter().collect()).map_err(PolicyError::Wrong)?;
            say(&settings)
        }
        PolicyCommand::Apply { file, trial, all_at_once } => {
            let text = read(&file)?;
            let plan = (!all_at_once).then(|| trial.plan());
            let version = apply::apply(&connected(config_path).await?, &text, plan.as_ref()).await?;
            say(&format!("Policy version {version} is for all hosts.\n"))
        }
        PolicyCommand::Resume { trial } => {
            let version = apply::resume(&connected(config_path).await?, &trial.plan()).await?;
            say(&format!("Policy version {version} is for all hosts.\n"))
        }
        PolicyCommand::Show { json } => {
            let broker = connected(config_path).await?;
            let shown = PolicyShown::read(&broker).await?.ok_or(PolicyError::NoPolicy)?;
            Ok(crate::print(json, &shown, &format!("{}{}", shown.says, shown.document.says))?)
        }
        PolicyCommand::Rollback { reason } => {
            let broker = connected(config_path).await?;
            let rollout = apply::rollback(&broker, apply::rollout(&broker).await?, &reason).await?;
            say(&rollout_text(&rollout))
        }
    }
}

async fn connected(config_path: &Path) -> Result<Broker, AdministrationError> {
    Ok(crate::connect(&HostConfig::read(config_path)?).await?)
}

/// One byte more than a document may have is enough to refuse it.
fn read(path: &Path) -> Result<String, AdministrationError> {
    let most = longrun_fleet::policy::MOST_BYTES as u64 + 1;
    let mut text = Vec::new();
    let done = std::fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut text));
    done.map_err(|source| AdministrationError::Read { path: path.to_owned(), source })?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn say(text: &str) -> Result<(), AdministrationError> {
    Ok(crate::print(false, &(), text)?)
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((label, value)) if !label.is_empty() && !value.is_empty() => Ok((label.to_owned(), value.to_owned())),
        _ => Err("use LABEL=VALUE, as in role=database".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_finds_the_accounts_from_the_directory_of_its_configuration() {
        let found = |file: &str| included(Path::new(file)).to_string_lossy().into_owned();
        assert_eq!(found("/etc/longrun-fleet/accounts.conf"), "longrun-fleet/accounts.conf");
        assert_eq!(found("/nowhere/office/accounts.conf"), "../nowhere/office/accounts.conf");
    }
}
