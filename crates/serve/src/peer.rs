//! The user at the other end of the socket, and the permissions of that user.
//!
//! Owns the rule: root, the user of this process and the members of the operators' group are operators and may do everything,
//! the members of the viewers' group may read everything, and other users are guests if the caller permits it.

use crate::room::Guest;
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

/// Who has permissions: numbers of groups and of a user; `None` when there is no such group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    operators: Option<u32>,
    viewers: Option<u32>,
    agents: Option<u32>,
    /// Who runs this process has all that it has.
    own: Option<u32>,
    /// All other users may read status and metrics.
    open: bool,
}

impl Groups {
    /// Those with these names on this machine.
    #[must_use]
    pub fn named(operators: Option<&str>, viewers: &str, agents: Option<&str>) -> Self {
        Self::read(&fs::read_to_string("/etc/group").unwrap_or_default(), operators, viewers, agents)
    }

    fn read(table: &str, operators: Option<&str>, viewers: &str, agents: Option<&str>) -> Self {
        let number = |name: Option<&str>| name.and_then(|name| number_in(table, name));
        Self { operators: number(operators), viewers: number(Some(viewers)), agents: number(agents), ..Self::default() }
    }

    /// Where all other users are guests.
    #[must_use]
    pub const fn open_to_all(self, open: bool) -> Self {
        Self { open, ..self }
    }

    /// Where this user is an operator too.
    #[must_use]
    pub const fn and_user(self, user: u32) -> Self {
        Self { own: Some(user), ..self }
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
    #[must_use]
    pub fn guest(&self, groups: Groups) -> Guest {
        match self.user {
            Some(user) if self.role(groups) > Role::Stranger => Guest::User(user),
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
    pub fn role(&self, groups: Groups) -> Role {
        let is_in = |group: Option<u32>| group.is_some_and(|group| self.groups.contains(&group));
        match self.user {
            None => Role::Stranger,
            Some(0) => Role::Operator,
            user if user == groups.own => Role::Operator,
            Some(_) if is_in(groups.operators) => Role::Operator,
            Some(_) if is_in(groups.viewers) || self.is_agent(groups) => Role::Viewer,
            Some(_) if groups.open => Role::Guest,
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
        let groups = Groups { operators: Some(77), viewers: Some(88), agents: Some(99), own: Some(5), open: false };
        let user = |user, groups: &[u32]| Peer { user: Some(user), groups: groups.to_vec() };
        for (peer, closed_role, open_role) in [
            (user(0, &[0]), Role::Operator, Role::Operator),
            (user(5, &[5]), Role::Operator, Role::Operator),
            (user(1000, &[1000, 77]), Role::Operator, Role::Operator),
            (user(1000, &[88, 77]), Role::Operator, Role::Operator),
            (user(1001, &[88, 1001]), Role::Viewer, Role::Viewer),
            (user(1003, &[99]), Role::Viewer, Role::Viewer),
            (user(1002, &[1002]), Role::Stranger, Role::Guest),
            (Peer { user: None, groups: vec![77, 88] }, Role::Stranger, Role::Stranger),
        ] {
            assert_eq!((peer.role(groups), peer.role(groups.open_to_all(true))), (closed_role, open_role), "{peer:?}");
            let guest = if closed_role == Role::Stranger { Guest::Stranger } else { Guest::User(peer.user.unwrap()) };
            assert_eq!(peer.guest(groups), guest);
        }
        assert_eq!([user(1, &[99]), user(1, &[77])].map(|peer| peer.is_agent(groups)), [true, false]);
        assert!(!Peer { user: None, groups: vec![99] }.is_agent(groups));
        let nameless = Peer { user: None, groups: Vec::new() };
        assert_eq!(nameless.role(Groups::default()), Role::Stranger, "no user is not the user of nobody");
        assert_eq!(user(1000, &[77, 88]).role(Groups::default()), Role::Stranger, "groups that do not exist");
    }

    #[test]
    fn groups_are_found_by_name() {
        let table = "root:x:0:\nlongrun:x:977:alice,bob\nlong:x:5:\nbroken\nbad:x:y:\nlongrun-viewers:x:9:\nlongrun-fleet:x:98:\n";
        assert_eq!(
            ["longrun", "long", "broken", "bad", "none"].map(|n| number_in(table, n)),
            [Some(977), Some(5), None, None, None]
        );
        let read = |operators| Groups::read(table, operators, "longrun-viewers", Some("longrun-fleet"));
        let all = Groups { operators: Some(977), viewers: Some(9), agents: Some(98), ..Groups::default() };
        assert_eq!(read(Some("longrun")), all);
        assert_eq!(read(None), Groups { operators: None, ..all });
        assert_eq!(Groups::read(table, None, "none", None), Groups::default());
    }
}
