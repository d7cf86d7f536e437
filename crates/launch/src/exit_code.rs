//! The table of exit codes, from which `--help`, failure reports and docs/failures.md take theirs.
//! Scripts depend on these codes.

use base::error::{ErrorKind, Result};

macro_rules! exit_codes {
    ($($(#[$more:meta])* $code:ident = $number:literal, $name:literal, $meaning:literal;)*) => {
        /// The exit code of a process.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        #[repr(u8)]
        pub enum ExitCode {
            $(#[doc = $meaning] $(#[$more])* $code = $number,)*
        }

        impl ExitCode {
            /// All exit codes.
            pub const ALL: &[ExitCode] = &[$(ExitCode::$code),*];

            /// A short description.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$code => $name),* }
            }

            /// A description as a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$code => $meaning),* }
            }
        }
    };
}

exit_codes! {
    Done = 0, "done", "done";
    /// A run itself is done.
    Unmet = 1, "assertion does not hold, or results differ",
        "an `--assert` does not hold, or `repro` or `rehearse` found a difference";
    Usage = 2, "bad command line", "bad command line";
    /// `bisect` itself is done.
    Differ = 3, "runs differ", "the runs of `bisect` differ";
    Unavailable = 69, "device or backend missing", "a device or backend is missing";
    /// A bug in ddp-run, or a failure of the operating system (except of its files) without a more specific code.
    Internal = 70, "internal error", "internal error";
    Io = 74, "checkpoint or other file unreadable or unwritable",
        "a checkpoint or another file can't be read or written";
    /// `--resume auto` continues the run.
    Stopped = 75, "stopped on request and resumable", "stopped on request";
    /// The data that it names is missing or damaged.
    Spec = 78, "spec or data invalid", "the spec or its data is invalid";
    /// No restarts are left.
    WorkerFailed = 90, "worker failed", "a worker failed";
    Collective = 91, "collective failed", "a collective timed out or lost a peer";
    NonFinite = 92, "loss or gradient not finite", "loss or gradient is not finite";
    Rendezvous = 93, "rendezvous failed", "the processes did not connect to each other";
    /// Silent data corruption.
    Diverged = 94, "ranks diverged", "the ranks' states differ: silent data corruption";
}

impl ExitCode {
    /// The exit code with the number `code`, if there is one.
    pub fn from_status(code: i32) -> Option<Self> {
        Self::ALL.iter().copied().find(|known| *known as i32 == code)
    }

    /// As [`ExitCode::from_status`], of a process that a supervisor has started. It checks no assertion and compares no runs: what
    /// ends it with 1 or 3 is other code.
    pub fn of_worker(code: i32) -> Option<Self> {
        Self::from_status(code).filter(|known| !matches!(known, Self::Unmet | Self::Differ))
    }

    /// The exit code of a process that has `ended` with a result.
    pub fn from_result(ended: &Result<ExitCode>) -> Self {
        ended.as_ref().map_or_else(|e| e.kind.into(), |code| *code)
    }

    /// The kind of the error that a process reports whose workers ended with this code.
    pub fn error_kind(self) -> ErrorKind {
        ErrorKind::ALL.into_iter().find(|kind| Self::from(*kind) == self).unwrap_or(ErrorKind::Internal)
    }

    /// The table for `--help`.
    pub fn list() -> String {
        let codes: Vec<String> =
            Self::ALL.iter().map(|code| format!("{} {}", *code as u8, code.name())).collect();
        format!("Exit codes: {}.", codes.join(", "))
    }
}

impl From<ErrorKind> for ExitCode {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Unmet => Self::Unmet,
            ErrorKind::Usage => Self::Usage,
            ErrorKind::Unavailable => Self::Unavailable,
            ErrorKind::Internal => Self::Internal,
            ErrorKind::Io => Self::Io,
            ErrorKind::Stopped => Self::Stopped,
            ErrorKind::Spec => Self::Spec,
            ErrorKind::WorkerFailed => Self::WorkerFailed,
            ErrorKind::Collective => Self::Collective,
            ErrorKind::NonFinite => Self::NonFinite,
            ErrorKind::Rendezvous => Self::Rendezvous,
            ErrorKind::Diverged => Self::Diverged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::RunEnd;

    #[test]
    fn undocumented_statuses_have_no_exit_code() {
        for code in ExitCode::ALL {
            assert_eq!(ExitCode::from_status(*code as i32), Some(*code));
        }
        assert_eq!(ExitCode::from_status(101), None);
        assert_eq!(ExitCode::from_status(256 + 75), None);
        assert_eq!([1, 2, 3].map(ExitCode::of_worker), [None, Some(ExitCode::Usage), None]);
    }

    #[test]
    fn each_kind_of_error_has_its_own_code() {
        for kind in ErrorKind::ALL {
            assert_eq!(ExitCode::from(kind).error_kind(), kind);
            assert_eq!(
                RunEnd::from_exit_code(ExitCode::from(kind) as u64),
                match kind {
                    ErrorKind::Stopped => RunEnd::Stopped,
                    _ => RunEnd::Failed,
                }
            );
        }
        assert_eq!(RunEnd::from_exit_code(ExitCode::Done as u64), RunEnd::Done);
    }
}
