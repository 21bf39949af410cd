//! Limits the number of concurrent connections of each user.
//!
//! Owns the limits. Some places are reserved for root, and no other user can take all of the rest, so the administrator
//! always gets an answer. A connection without a free place is closed at once, so that it does not delay the next one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Places for root.
const ROOT: usize = 64;
/// Places for each other user, and for all of these together.
const EACH: usize = 16;
const OTHERS: usize = 64;
/// Places for users who may ask for nothing: only to be told so.
const STRANGERS: usize = 8;

/// The places, by user.
#[derive(Default)]
pub(super) struct Room {
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    root: usize,
    strangers: usize,
    others: BTreeMap<u32, usize>,
}

/// For whom a place among the connections is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guest {
    /// A user who may ask for something.
    User(u32),
    /// One who may not.
    Stranger,
}

fn lock(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place; free again when this is dropped.
pub(super) struct Place {
    room: Arc<Room>,
    guest: Guest,
}

impl Room {
    /// A place for `guest`, when there is one.
    pub(super) fn place(self: &Arc<Self>, guest: Guest) -> Option<Place> {
        let mut taken = lock(&self.taken);
        let all: usize = taken.others.values().sum();
        let (count, free) = match guest {
            Guest::User(0) => (&mut taken.root, ROOT),
            Guest::Stranger => (&mut taken.strangers, STRANGERS),
            Guest::User(_) if all >= OTHERS => return None,
            Guest::User(user) => (taken.others.entry(user).or_default(), EACH),
        };
        if *count >= free {
            return None;
        }
        *count += 1;
        Some(Place { room: Arc::clone(self), guest })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = lock(&self.room.taken);
        match self.guest {
            Guest::User(0) => taken.root = taken.root.saturating_sub(1),
            Guest::Stranger => taken.strangers = taken.strangers.saturating_sub(1),
            Guest::User(user) => {
                if let Some(count) = taken.others.get_mut(&user) {
                    *count = count.saturating_sub(1);
                }
                taken.others.retain(|_, count| *count > 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_can_take_the_places_of_root_or_all_of_the_others() {
        let room = Arc::new(Room::default());
        let take = |guest| (0..1000).map_while(|_| room.place(guest)).collect::<Vec<_>>();
        let strangers = take(Guest::Stranger);
        let greedy = take(Guest::User(1000));
        let others: Vec<_> = (1001..1100).flat_map(|user| take(Guest::User(user))).collect();
        assert_eq!((strangers.len(), greedy.len(), others.len()), (STRANGERS, EACH, OTHERS - EACH));
        assert!(room.place(Guest::User(2000)).is_none());
        assert_eq!(take(Guest::User(0)).len(), ROOT);
        drop(greedy);
        assert_eq!(take(Guest::User(2000)).len(), EACH);
        drop((strangers, others));
        assert!(lock(&room.taken).others.is_empty());
    }
}
