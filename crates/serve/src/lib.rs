//! HTTP on a Unix socket, for the service and for the console of a fleet.
//!
//! Owns who asks ([`Peer`]) and what they may do ([`Groups`]), the limits on connections and requests, the form of a refusal
//! ([`Failure`]) and the socket itself. Never knows what is asked for.

mod failure;
mod peer;
mod request;
mod room;
mod server;
mod socket;

pub use failure::Failure;
pub use peer::{Groups, Peer};
pub use request::{Highest, Sender, whole};
pub use room::Guest;
pub use server::serve;
pub use socket::{Socket, SocketError, listen};
