//! The file of accounts that the broker includes: who may do what there.
//!
//! Owns the form of the file and the permissions. Every host has an account of its own, which imports the few subjects that it
//! may write or ask, and nothing else. Permissions in one account for all would not do: the server answers to whatever
//! subject a request names, with its own rights, so that a host could have a record of its own delivered as the policy. In an
//! account of its own, answers stay in it. Pure.

use crate::names::{LEASES, Name, POLICY, STATE};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The account that has the buckets.
const CENTRE: &str = "LONGRUN";
/// Before what this program knows of the file.
const MARK: &str = "# longrun ";
const HEAD: &str = "\
# The accounts of a fleet at nats-server, made by `longrun fleet`. Include it in nats-server.conf:
#   accounts { include \"accounts.conf\" }
# Do not change it by hand: `longrun fleet enroll` and `revoke` write it anew.
";

/// A host that may take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enrolled {
    /// Its name.
    pub host: Name,
    /// Its public key.
    pub key: String,
    /// The storage groups whose leases it may take.
    pub groups: BTreeSet<Name>,
}

/// A line that this program knows.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Administrator(String),
    Host(Enrolled),
}

/// All of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Public keys of administrators.
    pub administrators: Vec<String>,
    /// Hosts, by name.
    pub hosts: Vec<Enrolled>,
}

/// A file that is none of these.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}; restore the file from a copy, or remove it and enroll all hosts again")]
pub struct NotAccounts {
    line: usize,
    what: String,
}

impl Accounts {
    /// What a file says.
    ///
    /// # Errors
    /// It was not written by this program.
    pub fn parse(text: &str) -> Result<Self, NotAccounts> {
        let mut accounts = Self::default();
        for (index, line) in text.lines().enumerate() {
            let Some(known) = line.strip_prefix(MARK) else { continue };
            let wrong = |what: String| NotAccounts { line: index + 1, what };
            match serde_json::from_str(known).map_err(|error| wrong(error.to_string()))? {
                Line::Administrator(key) => accounts.administrators.push(checked(key).map_err(wrong)?),
                Line::Host(host) => {
                    let key = checked(host.key).map_err(wrong)?;
                    accounts.hosts.push(Enrolled { key, ..host });
                }
            }
        }
        if accounts.to_text() == text {
            Ok(accounts)
        } else {
            Err(NotAccounts { line: 1, what: "the file was changed by hand".to_owned() })
        }
    }

    /// The host of this name.
    #[must_use]
    pub fn host(&self, name: &Name) -> Option<&Enrolled> {
        self.hosts.iter().find(|host| host.host == *name)
    }

    /// Adds a host, or replaces it.
    pub fn enroll(&mut self, host: Enrolled) {
        self.revoke(&host.host);
        self.hosts.push(host);
        self.hosts.sort_by(|a, b| a.host.cmp(&b.host));
    }

    /// Removes a host; whether there was one.
    pub fn revoke(&mut self, name: &Name) -> bool {
        let before = self.hosts.len();
        self.hosts.retain(|host| host.host != *name);
        self.hosts.len() < before
    }

    /// The file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = HEAD.to_owned();
        let mark = |text: &mut String, line: &Line| {
            _ = writeln!(text, "{MARK}{}", serde_json::to_string(line).unwrap_or_default());
        };
        for key in &self.administrators {
            mark(&mut text, &Line::Administrator(key.clone()));
        }
        let users: Vec<String> = self.administrators.iter().map(|key| format!("{{nkey: {key}}}")).collect();
        let exports: Vec<String> = exported().iter().map(|subject| format!("{{service: \"{subject}\"}}")).collect();
        _ = writeln!(
            text,
            "{CENTRE} {{\n  jetstream: enabled\n  users: [{}]\n  exports: [\n    {}\n  ]\n}}",
            users.join(", "),
            exports.join("\n    ")
        );
        for host in &self.hosts {
            mark(&mut text, &Line::Host(host.clone()));
            let Enrolled { host: name, key, groups } = host;
            let subjects = subjects(name, groups);
            let allowed: Vec<String> = subjects.iter().map(|subject| format!("\"{subject}\"")).collect();
            let imports: Vec<String> = subjects
                .iter()
                .map(|subject| format!("{{service: {{account: {CENTRE}, subject: \"{subject}\"}}}}"))
                .collect();
            _ = writeln!(
                text,
                "{CENTRE}_{name} {{\n  users: [{{nkey: {key}, permissions: {{publish: [{}], subscribe: [\"_INBOX_{name}.>\"]}}}}]\n  imports: [\n    {}\n  ]\n}}",
                allowed.join(", "),
                imports.join("\n    ")
            );
        }
        text
    }
}

/// What hosts may be given.
fn exported() -> [String; 4] {
    [
        format!("$KV.{STATE}.*"),
        format!("$KV.{LEASES}.*.*"),
        format!("$JS.API.DIRECT.GET.KV_{LEASES}.$KV.{LEASES}.*.*"),
        format!("$JS.API.DIRECT.GET.KV_{POLICY}.$KV.{POLICY}.>"),
    ]
}

/// What a host may write and ask: its own state, the leases of its groups, and the policy.
fn subjects(host: &Name, groups: &BTreeSet<Name>) -> Vec<String> {
    let read = |key: &str| format!("$JS.API.DIRECT.GET.KV_{POLICY}.$KV.{POLICY}.{key}");
    let mut all = vec![format!("$KV.{STATE}.{host}"), read("rollout"), read("groups"), read("document.*")];
    for group in groups {
        let leases = format!("$KV.{LEASES}.{group}.*");
        all.push(format!("$JS.API.DIRECT.GET.KV_{LEASES}.{leases}"));
        all.push(leases);
    }
    all
}

fn checked(key: String) -> Result<String, String> {
    match nkeys::KeyPair::from_public_key(&key) {
        Ok(pair) if matches!(pair.key_pair_type(), nkeys::KeyPairType::User) => Ok(key),
        _ => Err(format!("{key:?} is no public key of a user")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, groups: &[&str]) -> Enrolled {
        let key = nkeys::KeyPair::new_user().public_key();
        let groups = groups.iter().map(|group| group.parse().unwrap()).collect();
        Enrolled { host: name.parse().unwrap(), key, groups }
    }

    #[test]
    fn what_is_written_is_read_again_and_a_change_by_hand_is_noticed() {
        let mut accounts = Accounts { administrators: vec![host("x", &[]).key], hosts: Vec::new() };
        assert_eq!(Accounts::parse(&accounts.to_text()), Ok(accounts.clone()));
        accounts.enroll(host("db-2", &["san1", "san2"]));
        accounts.enroll(host("db-1", &[]));
        let again = host("db-1", &["san1"]);
        accounts.enroll(again.clone());
        assert_eq!(accounts.host(&again.host), Some(&again));
        let text = accounts.to_text();
        assert_eq!(Accounts::parse(&text), Ok(accounts.clone()));
        assert!(Accounts::parse(&text.replace("$KV.longrun_state.db-1", "$KV.>")).is_err());
        let wrong = Accounts::parse(&text.replace(&again.key, "U\\\"}]")).unwrap_err().to_string();
        assert!(wrong.contains("line"), "{wrong}");
        assert!(accounts.revoke(&again.host) && !accounts.revoke(&again.host));
        assert!(!accounts.to_text().contains(&again.key));
    }
}
