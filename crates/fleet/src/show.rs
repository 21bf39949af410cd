//! `hosts`, `leases` and `groups`: what the broker holds, for administrators, and setting the limits of a group.

use crate::broker::{Broker, BrokerError, Kept, Put};
use crate::enroll::Office;
use crate::lease::{GroupLimits, GroupsRecord, Record, Revision, Spent};
use crate::names::{GROUPS_KEY, LEASES, Name, POLICY};
use crate::policy::Rollout;
use crate::policy::apply::{self, PolicyError};
use crate::report::{self, HostShown};
use jiff::{SignedDuration, Timestamp, Unit};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A slot as it is recorded. Its holder may have died since: then others take it after a term.
#[derive(Clone, Debug, Serialize)]
pub struct LeaseShown {
    /// The storage group.
    pub group: String,
    /// The number of the slot.
    pub slot: usize,
    /// Whether it is held.
    pub held: bool,
    /// Who holds it, or held it last.
    pub host: String,
    /// How often the bucket was written until this record.
    pub revision: Revision,
    /// Where it is held: until when, by the clock of the broker, if the holder does not renew it.
    pub until: Option<Timestamp>,
}

/// A storage group: its limits, and its use.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GroupShown {
    /// Its name.
    pub group: String,
    /// What the administrator set.
    #[serde(flatten)]
    pub limits: GroupLimits,
    /// The hosts that hold a slot.
    pub holders: Vec<String>,
    /// What was moved, and on which day, where there is a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved: Option<Spent>,
}

/// All slots that the broker knows.
///
/// # Errors
/// [`BrokerError`].
pub async fn leases(broker: &Broker) -> Result<Vec<LeaseShown>, BrokerError> {
    let all = broker.list(LEASES).await?;
    let shown = all.iter().filter_map(|Kept { key, found, written }| {
        let (group, slot) = key.split_once('.')?;
        let Record { owner, held, term_ms, .. } = found.record()?;
        let slot = slot.parse().ok()?;
        let term = SignedDuration::from_millis(term_ms.try_into().ok()?);
        let until = written.filter(|_| held).and_then(|written| written.checked_add(term).ok());
        let host = owner.host.into();
        Some(LeaseShown { group: group.to_owned(), slot, held, host, revision: found.revision, until })
    });
    Ok(shown.collect())
}

/// All groups that have limits or slots.
///
/// # Errors
/// [`BrokerError`].
pub async fn groups(broker: &Broker) -> Result<Vec<GroupShown>, BrokerError> {
    let mut shown: BTreeMap<String, GroupShown> = BTreeMap::new();
    for (group, limits) in limits(broker).await?.0 {
        shown.insert(group.clone(), GroupShown { group, limits, ..GroupShown::default() });
    }
    for Kept { key, found, .. } in broker.list(LEASES).await? {
        let Some((group, what)) = key.split_once('.') else { continue };
        let entry = shown.entry(group.to_owned());
        let entry = entry.or_insert_with(|| GroupShown { group: group.to_owned(), ..GroupShown::default() });
        if what == "budget" {
            entry.moved = serde_json::from_slice(&found.value).ok();
        } else if let Some(Record { owner, held: true, .. }) = found.record() {
            entry.holders.push(owner.host.into());
        }
    }
    Ok(shown.into_values().collect())
}

/// All hosts with what they told last, and the roll-out of the policy. Which are enrolled is known where the accounts of
/// `office` can be read.
///
/// # Errors
/// [`PolicyError`].
pub async fn hosts(broker: &Broker, office: &Office) -> Result<(Vec<HostShown>, Option<Rollout>), PolicyError> {
    let states = apply::states(broker).await?.into_iter().map(|(host, (state, _))| (host, state)).collect();
    let rollout = apply::rollout(broker).await?.0;
    let now = Timestamp::now().as_second().try_into().unwrap_or(0);
    Ok((report::hosts(&states, office.accounts().ok().as_ref(), rollout.as_ref(), now), rollout))
}

/// Sets the limits of a group, or with none of them takes it off the list, by `change`.
///
/// # Errors
/// [`BrokerError`]; the record is not understood, or another administrator changed it at the same moment.
pub async fn set_limits(broker: &Broker, group: &Name, limits: GroupLimits) -> Result<(), BrokerError> {
    let (mut record, revision) = self::limits(broker).await?;
    if limits == GroupLimits::default() {
        record.remove(group.as_str());
    } else {
        record.insert(group.as_str().to_owned(), limits);
    }
    let value = serde_json::to_vec(&record).map_err(|error| BrokerError::Refused(error.to_string()))?;
    match broker.put(POLICY, GROUPS_KEY, revision, value).await? {
        Put::Written(_) => Ok(()),
        Put::Outdated => Err(BrokerError::Refused("the limits were changed at the same moment; try again".to_owned())),
    }
}

async fn limits(broker: &Broker) -> Result<(GroupsRecord, Revision), BrokerError> {
    let found = broker.get(POLICY, GROUPS_KEY).await?;
    let record: Option<GroupsRecord> = found
        .read()
        .map_err(|error| BrokerError::Refused(format!("the limits of the groups are not understood: {error}")))?;
    Ok((record.unwrap_or_default(), found.revision))
}

/// Leases as a table.
#[must_use]
pub fn lease_table(leases: &[LeaseShown]) -> String {
    let rows = leases.iter().map(|lease| {
        let state = if lease.held { "held by" } else { "free, last held by" };
        let until =
            lease.until.and_then(|until| until.round(Unit::Second).ok()).map_or_else(String::new, |t| t.to_string());
        [lease.group.clone(), lease.slot.to_string(), format!("{state} {}", lease.host), until]
    });
    table(["GROUP", "SLOT", "HOST", "UNTIL, UNLESS RENEWED"], rows)
}

/// Groups as a table; `today` in days since 1970 (UTC). What was moved is recorded for the day of the last move.
#[must_use]
pub fn group_table(groups: &[GroupShown], today: u64) -> String {
    let rows = groups.iter().map(|group| {
        let or_default = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let limits = &group.limits;
        [
            group.group.clone(),
            or_default(limits.slots.map(|slots| slots.to_string())),
            or_default(group.moved.map(|moved| if moved.day < today { 0 } else { moved.bytes }.to_string())),
            or_default(limits.bytes_per_day.map(|bytes| bytes.to_string())),
            or_default(limits.latency_limit_us.map(|limit| limit.to_string())),
            group.holders.join(", "),
        ]
    });
    table(["GROUP", "SLOTS", "MOVED TODAY", "BYTES A DAY", "LATENCY LIMIT (us)", "HOLDERS"], rows)
}

/// Rows under their heads.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<[String; N]> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let mut widths = [0; N];
    for row in &rows {
        widths.iter_mut().zip(row).for_each(|(width, cell)| *width = cell.chars().count().max(*width));
    }
    rows.iter().fold(String::new(), |mut text, row| {
        let line = row.iter().zip(widths).fold(String::new(), |mut line, (cell, width)| {
            _ = write!(line, "{cell:<width$}  ");
            line
        });
        text.push_str(line.trim_end());
        text.push('\n');
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_columns() {
        let shown = |group: &str, held| LeaseShown {
            group: group.to_owned(),
            slot: 0,
            held,
            host: "db-1".to_owned(),
            revision: Revision(1),
            until: held.then(|| "2026-01-31T12:00:30.7Z".parse().unwrap()),
        };
        assert_eq!(
            lease_table(&[shown("san", true), shown("long-name", false)]),
            "GROUP      SLOT  HOST                     UNTIL, UNLESS RENEWED\n\
             san        0     held by db-1             2026-01-31T12:00:31Z\n\
             long-name  0     free, last held by db-1\n"
        );
    }

    #[test]
    fn what_was_moved_on_an_earlier_day_is_not_of_today() {
        let moved = Some(Spent { day: 20_000, bytes: 700 });
        let group = GroupShown { group: "san".to_owned(), moved, ..GroupShown::default() };
        let cell = |today| group_table(std::slice::from_ref(&group), today).lines().nth(1).unwrap().to_owned();
        assert_eq!(cell(20_000).split_whitespace().nth(2), Some("700"));
        assert_eq!(cell(20_001).split_whitespace().nth(2), Some("0"));
    }
}
