//! Why a rank failed, from its error to the exit code of the run. docs/failures.md describes the path.

use serde::{Deserialize, Serialize};

use crate::ExitCode;
use base::error::{Error, is_transient};
use collectives::{CommError, CommErrorKind};

/// Why a rank failed. Failure notes have its name as `kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureCause {
    /// The connection to another rank broke.
    PeerLost,
    /// A collective was not complete within its deadline.
    Timeout,
    /// Another rank reported a failure.
    Aborted,
    /// The ranks did not meet.
    Rendezvous,
    /// The command line, or the environment.
    Usage,
    /// A device or backend that this machine or build lacks.
    DeviceMissing,
    /// A device that failed after training had begun.
    DeviceLost,
    /// A checkpoint or another file, for a lasting reason.
    Checkpoint,
    /// A file could not be read or written, for a possibly temporary reason.
    Io,
    /// The spec or its data.
    Spec,
    /// A loss or gradient.
    NonFinite,
    /// The ranks' states differ.
    Diverged,
    /// A bug; also ranks that call different collectives.
    Bug,
    /// A panic of which only the end of the process, or a note without a place, is known. The rank may have outlived it.
    Panicked,
    /// The process could not be started: processes or memory may be scarce temporarily.
    NotStarted,
    /// Any other: a signal, an unknown exit code, an error of a program that is not this one.
    Other,
}

impl FailureCause {
    /// The cause of an error of this process.
    pub fn from_error(error: &Error) -> Self {
        let comm = error.caused_by::<CommError>().map(|e| e.kind);
        match (Self::of_code(error.kind.into()), comm) {
            (Some(Self::PeerLost), Some(CommErrorKind::Timeout)) => Self::Timeout,
            (Some(Self::PeerLost), Some(CommErrorKind::Aborted)) => Self::Aborted,
            (Some(Self::Checkpoint), _) if error.caused_by().is_some_and(is_transient) => Self::Io,
            (cause, _) => cause.unwrap_or(Self::Other),
        }
    }

    /// The cause of a failure of which only the exit code is known; `None` if the code is not that of a failure.
    pub fn of_code(code: ExitCode) -> Option<Self> {
        Some(match code {
            ExitCode::Done | ExitCode::Unmet | ExitCode::Differ | ExitCode::Stopped => return None,
            ExitCode::Usage => Self::Usage,
            ExitCode::Unavailable => Self::DeviceMissing,
            ExitCode::Internal => Self::Bug,
            ExitCode::Io => Self::Checkpoint,
            ExitCode::Spec => Self::Spec,
            ExitCode::WorkerFailed => Self::Other,
            ExitCode::Collective => Self::PeerLost,
            ExitCode::NonFinite => Self::NonFinite,
            ExitCode::Rendezvous => Self::Rendezvous,
            ExitCode::Diverged => Self::Diverged,
        })
    }

    /// The exit code of a run that fails for this cause.
    pub fn code(self) -> ExitCode {
        match self {
            Self::PeerLost | Self::Timeout | Self::Aborted => ExitCode::Collective,
            Self::Rendezvous => ExitCode::Rendezvous,
            Self::Usage => ExitCode::Usage,
            Self::DeviceMissing | Self::DeviceLost => ExitCode::Unavailable,
            Self::Checkpoint | Self::Io => ExitCode::Io,
            Self::Spec => ExitCode::Spec,
            Self::NonFinite => ExitCode::NonFinite,
            Self::Diverged => ExitCode::Diverged,
            Self::Bug | Self::NotStarted => ExitCode::Internal,
            Self::Panicked | Self::Other => ExitCode::WorkerFailed,
        }
    }

    /// Whether the rank failed because of another one.
    pub fn is_consequence(self) -> bool {
        matches!(self, Self::PeerLost | Self::Timeout | Self::Aborted | Self::Rendezvous)
    }

    /// Whether the command line, the spec or the machine is wrong, and no worker.
    pub(crate) fn is_of_job(self) -> bool {
        matches!(self, Self::Spec | Self::Usage | Self::DeviceMissing | Self::DeviceLost)
    }

    /// Whether a restart of the same job may succeed.
    pub fn is_retryable(self) -> bool {
        match self {
            Self::PeerLost
            | Self::Timeout
            | Self::Aborted
            | Self::Rendezvous
            | Self::DeviceLost
            | Self::Io
            | Self::Diverged
            | Self::NotStarted
            | Self::Other => true,
            Self::Usage
            | Self::DeviceMissing
            | Self::Checkpoint
            | Self::Spec
            | Self::NonFinite
            | Self::Bug
            | Self::Panicked => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::IoContext;
    use std::io;
    use std::path::Path;

    #[test]
    fn transient_file_errors_are_retryable_and_a_full_disk_is_not() {
        let cause = |code| {
            let failed: io::Result<()> = Err(io::Error::from_raw_os_error(code));
            FailureCause::from_error(&failed.doing("read", Path::new("x")).expect_err("it failed"))
        };
        assert_eq!((cause(libc::ESTALE), cause(libc::EIO)), (FailureCause::Io, FailureCause::Io));
        let full = [libc::ENOSPC, libc::EFBIG].map(cause);
        assert_eq!(full, [FailureCause::Checkpoint; 2]);
        assert!(FailureCause::Io.is_retryable() && !FailureCause::Checkpoint.is_retryable());
    }

    #[test]
    fn the_cause_of_a_code_has_that_code() {
        for code in ExitCode::ALL {
            let of_cause = FailureCause::of_code(*code).map(FailureCause::code);
            assert!(of_cause.is_none_or(|own| own == *code), "{code:?}: {of_cause:?}");
        }
    }
}
