//! The user at the other end of a Unix socket.

use crate::raw::checked;
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd};

/// The supplementary groups that the process at the other end had when it connected.
///
/// # Errors
/// `ERANGE` for more than 65536 groups; `ENODATA` when there is no peer.
pub fn peer_groups(socket: impl AsFd) -> Result<Vec<u32>, Errno> {
    let mut groups: Vec<u32> = vec![0; 65_536];
    let mut bytes = (groups.len() * size_of::<u32>()) as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes, the length of the buffer, and the length it used; both live during
    // the call.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            std::ptr::from_mut(&mut bytes),
        )
    };
    checked(libc::c_long::from(rc))?;
    groups.truncate(bytes as usize / size_of::<u32>());
    Ok(groups)
}
