//! Leases: at most so many hosts of a storage group work at a time.
//!
//! Owns the algorithm, which is a function of what was asked, what was answered and when by this machine's own clock. Makes
//! no I/O and reads no clock: the agent does, and the simulation in the tests.
//!
//! Why no two hosts hold one slot. Every writing to a slot names the revision that it replaces, as it was read on
//! the same connection. Who holds a slot stops ⅔ of
//! a term after *sending* the last request that was answered well in time. Others take it only after they have seen it
//! unchanged for a full term. Clocks that run 10 % apart change nothing in that order, and no clock is compared with that of
//! another machine. One exception makes handing over quick: a record that says `free` may be taken at once, but only on a
//! connection that is a full term old: a broker that lost its latest data has broken all connections. In a cluster, a slot
//! that was taken is renewed once before work begins: servers that have not agreed yet may let two hosts take it.

mod keeper;
mod limits;
mod record;
mod slot;
mod time;

pub use keeper::{Answer, Connection, Keeper, Request, Step};
pub use limits::{Allowance, Governed, GroupLimits, GroupsRecord, Spent};
pub use record::{Found, Owner, Record, Revision};
pub use slot::Slot;
pub use time::{Moment, Term, today};
