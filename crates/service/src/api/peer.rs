//! The user at the other end of the socket, and the permissions of that user.
//!
//! Owns the rule: root and the members of the configured group may do everything. Other users may read status and
//! metrics if the configuration permits it, and nothing else.

use super::room::Guest;
use crate::config::ServiceSettings;
use std::fs;
use tokio::net::UnixStream;

/// The user who sends a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process of this machine, as the kernel tells.
    Local {
        /// Its user.
        user: u32,
        /// Its groups.
        groups: Vec<u32>,
    },
    /// A process that reached the metrics over TCP.
    Remote,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Figures, without names of files.
    ReadFigures,
    /// Everything else, which may have names of files in it.
    ReadAll,
    /// Something is to be done.
    Change,
}

impl Peer {
    /// Who is at the other end of `stream`; no one in particular when the kernel does not tell.
    #[must_use]
    pub fn of(stream: &UnixStream) -> Self {
        let Ok(credentials) = stream.peer_cred() else { return Self::Remote };
        let mut groups = longrun_sys::peer_groups(stream).unwrap_or_default();
        groups.push(credentials.gid());
        Self::Local { user: credentials.uid(), groups }
    }

    /// For whom a place among the connections is wanted.
    pub(super) fn guest(&self, settings: &ServiceSettings, group: Option<u32>) -> Guest {
        match self {
            Self::Local { user, .. } if self.may(Act::ReadFigures, settings, group) => Guest::User(*user),
            _ => Guest::Stranger,
        }
    }

    /// Whether they may.
    #[must_use]
    pub fn may(&self, act: Act, settings: &ServiceSettings, group: Option<u32>) -> bool {
        match self {
            Self::Remote => act == Act::ReadFigures,
            Self::Local { user: 0, .. } => true,
            Self::Local { groups, .. } if group.is_some_and(|group| groups.contains(&group)) => true,
            Self::Local { .. } => act == Act::ReadFigures && settings.readable_by_all,
        }
    }
}

/// The number of a group of this machine.
#[must_use]
pub fn group_number(name: &str) -> Option<u32> {
    number_in(&fs::read_to_string("/etc/group").unwrap_or_default(), name)
}

fn number_in(table: &str, name: &str) -> Option<u32> {
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1))??.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_the_group_may_all_others_only_read_figures_and_only_when_told_so() {
        let closed = ServiceSettings::default();
        let open = ServiceSettings { readable_by_all: true, ..ServiceSettings::default() };
        let root = Peer::Local { user: 0, groups: vec![0] };
        let member = Peer::Local { user: 1000, groups: vec![1000, 77] };
        let other = Peer::Local { user: 1001, groups: vec![1001] };
        for act in [Act::ReadFigures, Act::ReadAll, Act::Change] {
            assert!(root.may(act, &closed, None) && member.may(act, &closed, Some(77)));
            assert!(!member.may(act, &closed, None) && !other.may(act, &closed, Some(77)));
            assert_eq!(other.may(act, &open, Some(77)), act == Act::ReadFigures);
            assert_eq!(other.guest(&closed, Some(77)), Guest::Stranger);
            assert_eq!(other.guest(&open, Some(77)), Guest::User(1001));
            assert_eq!(
                (root.guest(&closed, None), member.guest(&closed, Some(77))),
                (Guest::User(0), Guest::User(1000))
            );
            assert_eq!(Peer::Remote.may(act, &open, Some(77)), act == Act::ReadFigures);
        }
    }

    #[test]
    fn groups_are_found_by_name() {
        let table = "root:x:0:\nlongrun:x:977:alice,bob\nlong:x:5:\nbroken\nbad:x:y:\n";
        assert_eq!(
            ["longrun", "long", "broken", "bad", "none"].map(|n| number_in(table, n)),
            [Some(977), Some(5), None, None, None]
        );
    }
}
