//! The user at the other end of the socket, and the permissions of that user.
//!
//! Owns the rule: root and the members of the group `group` are operators and may do everything, the members of the group
//! `viewers` may read everything, and other users may read status and metrics if the configuration permits it.

use super::room::Guest;
use crate::config::ServiceSettings;
use longrun_api::model::Role;
use std::fs;
use tokio::net::UnixStream;

/// The process that sends a request, as the kernel tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its user; `None` when the kernel does not tell.
    user: Option<u32>,
    /// Its groups.
    groups: Vec<u32>,
}

/// The numbers of the groups that give permissions; `None` when a group does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    operators: Option<u32>,
    viewers: Option<u32>,
    agents: Option<u32>,
}

/// The agent of the fleet is in this group.
const AGENTS: &str = "longrun-fleet";

impl Groups {
    /// Those that `settings` name, on this machine.
    #[must_use]
    pub fn of(settings: &ServiceSettings) -> Self {
        Self::read(&fs::read_to_string("/etc/group").unwrap_or_default(), settings)
    }

    fn read(table: &str, settings: &ServiceSettings) -> Self {
        let operators = settings.group.as_deref().and_then(|name| number_in(table, name));
        Self { operators, viewers: number_in(table, &settings.viewers), agents: number_in(table, AGENTS) }
    }
}

impl Peer {
    /// Who is at the other end of `stream`.
    #[must_use]
    pub fn of(stream: &UnixStream) -> Self {
        let Ok(credentials) = stream.peer_cred() else { return Self { user: None, groups: Vec::new() } };
        let mut groups = longrun_sys::peer_groups(stream).unwrap_or_default();
        groups.push(credentials.gid());
        Self { user: Some(credentials.uid()), groups }
    }

    /// For whom a place among the connections is wanted.
    pub(super) fn guest(&self, settings: &ServiceSettings, groups: Groups) -> Guest {
        match self.user {
            Some(user) if self.role(settings, groups) > Role::Stranger => Guest::User(user),
            _ => Guest::Stranger,
        }
    }

    /// Whether this is root.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.user == Some(0)
    }

    /// Whether this is the agent of the fleet, which may read as viewers do, permit work, and set the policy.
    #[must_use]
    pub fn is_agent(&self, groups: Groups) -> bool {
        self.user.is_some() && groups.agents.is_some_and(|group| self.groups.contains(&group))
    }

    /// What they may do.
    #[must_use]
    pub fn role(&self, settings: &ServiceSettings, groups: Groups) -> Role {
        let is_in = |group: Option<u32>| group.is_some_and(|group| self.groups.contains(&group));
        match self.user {
            None => Role::Stranger,
            Some(0) => Role::Operator,
            Some(_) if is_in(groups.operators) => Role::Operator,
            Some(_) if is_in(groups.viewers) || self.is_agent(groups) => Role::Viewer,
            Some(_) if settings.readable_by_all => Role::Guest,
            Some(_) => Role::Stranger,
        }
    }
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
    fn each_user_has_the_role_of_their_groups_and_others_none() {
        let groups = Groups { operators: Some(77), viewers: Some(88), agents: Some(99) };
        let user = |user, groups: &[u32]| Peer { user: Some(user), groups: groups.to_vec() };
        let closed = ServiceSettings::default();
        let open = ServiceSettings { readable_by_all: true, ..ServiceSettings::default() };
        for (peer, closed_role, open_role) in [
            (user(0, &[0]), Role::Operator, Role::Operator),
            (user(1000, &[1000, 77]), Role::Operator, Role::Operator),
            (user(1000, &[88, 77]), Role::Operator, Role::Operator),
            (user(1001, &[88, 1001]), Role::Viewer, Role::Viewer),
            (user(1003, &[99]), Role::Viewer, Role::Viewer),
            (user(1002, &[1002]), Role::Stranger, Role::Guest),
            (Peer { user: None, groups: vec![77, 88] }, Role::Stranger, Role::Stranger),
        ] {
            assert_eq!((peer.role(&closed, groups), peer.role(&open, groups)), (closed_role, open_role), "{peer:?}");
            let guest = if closed_role == Role::Stranger { Guest::Stranger } else { Guest::User(peer.user.unwrap()) };
            assert_eq!(peer.guest(&closed, groups), guest);
        }
        assert_eq!([user(1, &[99]), user(1, &[77])].map(|peer| peer.is_agent(groups)), [true, false]);
        assert!(!Peer { user: None, groups: vec![99] }.is_agent(groups));
        assert_eq!(user(1000, &[77, 88]).role(&closed, Groups::default()), Role::Stranger, "groups that do not exist");
    }

    #[test]
    fn groups_are_found_by_name() {
        let table = "root:x:0:\nlongrun:x:977:alice,bob\nlong:x:5:\nbroken\nbad:x:y:\nlongrun-viewers:x:9:\nlongrun-fleet:x:98:\n";
        assert_eq!(
            ["longrun", "long", "broken", "bad", "none"].map(|n| number_in(table, n)),
            [Some(977), Some(5), None, None, None]
        );
        let settings = ServiceSettings { group: Some("longrun".into()), ..ServiceSettings::default() };
        assert_eq!(Groups::read(table, &settings), Groups { operators: Some(977), viewers: Some(9), agents: Some(98) });
        assert_eq!(
            Groups::read(table, &ServiceSettings::default()),
            Groups { operators: None, viewers: Some(9), agents: Some(98) }
        );
    }
}
