//! Exit statuses, and the one failure type of the command line.
//!
//! Owns the mapping from errors to statuses. Never exits: only `main` does.

use crate::text::printable;
use longrun_api::ClientError;
use longrun_engine::VolumeError;
use longrun_service::DaemonError;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;

/// How the process ends. Part of the stable contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The work is done.
    Done,
    /// An operation failed.
    Failed,
    /// The command line or the configuration is invalid.
    Usage,
    /// Not done because it would be unsafe or is not supported; nothing was changed.
    Refused,
    /// Stopped by a signal; all space that was held has been given back.
    Interrupted,
}

impl Status {
    /// The number that the shell sees.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Interrupted => 130,
        }
    }

    /// The other way round, as the process of a job says it.
    pub fn of_code(code: u8) -> Self {
        let all = [Self::Done, Self::Failed, Self::Usage, Self::Refused, Self::Interrupted];
        all.into_iter().find(|status| status.code() == code).unwrap_or(Self::Failed)
    }
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status.code())
    }
}

/// Why a command failed: one line for the user, and the exit status.
#[derive(Debug)]
pub struct Failure {
    /// The exit status.
    pub status: Status,
    /// Whether it would have worked as root.
    pub needs_root: bool,
    /// Whether another process is working on the volume.
    pub in_use: bool,
    message: String,
}

impl Failure {
    /// The message names what failed, on what, and what to do.
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, needs_root: false, in_use: false, message: message.into() }
    }

    /// The same failure with another message.
    pub fn with_message(self, message: String) -> Self {
        Self { message, ..self }
    }

    /// A system call on a path that the user named failed.
    pub fn io(path: &Path, act: &str, error: &std::io::Error) -> Self {
        let advice = match error.kind() {
            std::io::ErrorKind::NotFound => "; check the path",
            std::io::ErrorKind::PermissionDenied => "; run it as the owner or with sudo",
            std::io::ErrorKind::StorageFull => "; free some space",
            std::io::ErrorKind::AlreadyExists => "; choose another name, or remove it first",
            _ => "",
        };
        Self::new(Status::Failed, format!("{}: {act} failed: {error}{advice}", path.display()))
    }

    /// Signals cannot be caught. Work that a signal must be able to end safely is then not started.
    pub fn signals(error: std::io::Error) -> Self {
        Self::new(Status::Failed, format!("installing the signal handlers failed: {error}; nothing was started"))
    }

    /// A privilege cannot be dropped. With it, quotas would not apply to what Longrun preallocates.
    pub fn privilege(errno: longrun_sys::Errno) -> Self {
        Self::new(Status::Failed, format!("dropping CAP_SYS_RESOURCE failed: {errno}; nothing was started"))
    }

    /// Writing the output failed.
    pub fn output(error: std::io::Error) -> Self {
        Self::new(Status::Failed, format!("writing the output failed: {error}"))
    }
}

impl fmt::Display for Failure {
    /// One line without control characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.message))
    }
}

impl From<VolumeError> for Failure {
    fn from(error: VolumeError) -> Self {
        let status = match &error {
            VolumeError::NotAVolume { .. } => Status::Usage,
            VolumeError::Unsupported { .. }
            | VolumeError::NotWritable { .. }
            | VolumeError::NoDiscards { .. }
            | VolumeError::Journal { .. }
            | VolumeError::Damaged { .. }
            | VolumeError::Image(_)
            | VolumeError::Unfinished { .. }
            | VolumeError::InUse { .. }
            | VolumeError::NotPermitted { .. }
            | VolumeError::TooFull { .. }
            | VolumeError::MemoryLimit { .. } => Status::Refused,
            VolumeError::Io { .. }
            | VolumeError::Unwritten { .. }
            | VolumeError::Barrier { .. }
            | VolumeError::WriteFailed { .. }
            | VolumeError::NotClosed(_) => Status::Failed,
            VolumeError::Interrupted => Status::Interrupted,
        };
        let needs_root = matches!(error, VolumeError::NotPermitted { .. });
        let in_use = matches!(error, VolumeError::InUse { .. });
        let message = match error {
            VolumeError::NotPermitted { path, .. } if longrun_sys::is_root() => locked_out(&path),
            VolumeError::Interrupted => "interrupted; all space that was held has been given back".to_owned(),
            other => other.to_string(),
        };
        Self { status, needs_root, in_use, message }
    }
}

/// How an act ends whose volume was closed after it. Where the volume could not be closed, an act that has not failed itself has failed
/// by that: it must not be called done, refused without a change, or interrupted in good order.
pub fn after<T>(outcome: Result<T, Failure>, closed: Result<(), VolumeError>) -> Result<T, Failure> {
    match (outcome, closed) {
        (outcome, Ok(())) => outcome,
        (Err(failure), Err(_)) if failure.status == Status::Failed => Err(failure),
        (_, Err(error)) => Err(error.into()),
    }
}

impl From<DaemonError> for Failure {
    fn from(error: DaemonError) -> Self {
        let status = match &error {
            // The user wrote the file, like the command line.
            DaemonError::Config(_) => Status::Usage,
            DaemonError::NotPermitted | DaemonError::NoOpenat2 | DaemonError::Running { .. } => Status::Refused,
            DaemonError::Place { .. } | DaemonError::System { .. } => Status::Failed,
        };
        Self::new(status, error.to_string())
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let status = match &error {
            ClientError::Refused { .. } => Status::Refused,
            ClientError::NotRunning { .. } | ClientError::Garbled { .. } => Status::Failed,
        };
        Self::new(status, error.to_string())
    }
}

/// The message for root, who cannot be told to become root.
fn locked_out(path: &Path) -> String {
    format!(
        "{}: the device cannot be opened even as root; a container or a security policy prevents it: run longrun outside \
         the container, or give the container access to the device",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn statuses_have_the_numbers_of_the_contract() {
        let all = [Status::Done, Status::Failed, Status::Usage, Status::Refused, Status::Interrupted];
        assert_eq!(all.map(Status::code), [0, 1, 2, 3, 130]);
    }

    #[test]
    fn what_is_unsafe_or_unsupported_is_refused() {
        let path = PathBuf::from("/dev/x");
        let refused = VolumeError::Damaged { path: path.clone(), filesystem: "ext4".into(), detail: "no magic".into() };
        assert_eq!(Failure::from(refused).status, Status::Refused);
        let wrong = VolumeError::NotAVolume { path, problem: "is a socket".into() };
        assert_eq!(Failure::from(wrong).status, Status::Usage);
        assert_eq!(Failure::from(VolumeError::Interrupted).status, Status::Interrupted);
    }

    #[test]
    fn only_an_act_that_has_failed_itself_ends_otherwise_than_a_failed_close() {
        let closed = || Err(VolumeError::NotClosed("busy".into()));
        let with = |status| Err::<(), _>(Failure::new(status, "the act"));
        assert_eq!(after(Ok(7), Ok(())).unwrap(), 7);
        assert_eq!(after(with(Status::Refused), Ok(())).unwrap_err().status, Status::Refused);
        for outcome in [Ok(()), with(Status::Refused), with(Status::Usage), with(Status::Interrupted)] {
            let failure = after(outcome, closed()).unwrap_err();
            assert_eq!((failure.status, failure.to_string()), (Status::Failed, "busy".to_owned()));
        }
        assert_eq!(after(with(Status::Failed), closed()).unwrap_err().to_string(), "the act");
    }

    #[test]
    fn root_is_not_told_to_become_root() {
        let error = VolumeError::NotPermitted { path: PathBuf::from("/dev/x"), act: "reading the device".into() };
        let failure = Failure::from(error);
        assert!(failure.needs_root && failure.status == Status::Refused);
        assert_eq!(failure.to_string().contains("needs root"), !longrun_sys::is_root(), "{failure}");
    }

    #[test]
    fn a_message_cannot_drive_the_terminal() {
        let path = PathBuf::from("/mnt/\x1b]0;owned\x07\nfile");
        let shown = Failure::io(&path, "opening it", &std::io::Error::from_raw_os_error(2)).to_string();
        assert!(!shown.contains(['\x1b', '\x07', '\n']), "{shown:?}");
        assert!(shown.contains("\\x1b]0;owned\\x07\\nfile"), "{shown}");
    }
}
