//! Sockets that the process that started this one has opened for it.

use rustix::io::Errno;
use std::net::TcpListener;
use std::os::fd::BorrowedFd;

/// The first descriptor that systemd passes (`SD_LISTEN_FDS_START`).
const FIRST: i32 = 3;

/// The listening TCP socket that systemd has passed as number `index`, from 0: a duplicate of it.
///
/// # Errors
/// `EBADF` when there is none; that of `getsockname` when it is no socket.
pub fn passed_listener(index: u8) -> Result<TcpListener, Errno> {
    // SAFETY: the number is not negative, and the borrowed descriptor is used for one call, which answers EBADF when nothing is
    // open under it. The duplicate has an owner of its own; the descriptor itself is never closed by this program.
    let passed = unsafe { BorrowedFd::borrow_raw(FIRST + i32::from(index)) };
    let own = rustix::io::fcntl_dupfd_cloexec(passed, FIRST)?;
    rustix::net::sockopt::socket_acceptconn(&own)
        .and_then(|listens| if listens { Ok(()) } else { Err(Errno::INVAL) })?;
    Ok(TcpListener::from(own))
}
