//! The error type of the program.
//!
//! An [`Error`] says what went wrong, where, and what to do about it; `main` prints it once and
//! exits with the exit code of its [`ErrorKind`]. Crates with more detailed errors
//! (`collectives::CommError`, `spec::Diagnostics`) convert them to this one.

use crate::display;
use std::convert::Infallible;
use std::fmt;

/// What kind of error it is. Each kind has an exit code (`launch::ExitCode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// An `--assert` does not hold, or a comparison found a difference.
    Unmet,
    /// A bad command line, or a call with bad arguments.
    Usage,
    /// A device or backend that this machine or build lacks.
    Unavailable,
    /// A bug, or a failure of the operating system (except of its files) without a more specific
    /// kind.
    Internal,
    /// A checkpoint or another file that can't be read or written.
    Io,
    /// Stopped on request.
    Stopped,
    /// An invalid spec, or missing or damaged data, which the spec names.
    Spec,
    /// A worker that failed for a reason that its supervisor does not know.
    WorkerFailed,
    /// A collective that timed out or lost a peer.
    Collective,
    /// A loss, gradient or weight that is not finite.
    NonFinite,
    /// Processes that did not connect to each other.
    Rendezvous,
    /// Ranks whose states differ.
    Diverged,
}

impl ErrorKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::Unmet,
        Self::Usage,
        Self::Unavailable,
        Self::Internal,
        Self::Io,
        Self::Stopped,
        Self::Spec,
        Self::WorkerFailed,
        Self::Collective,
        Self::NonFinite,
        Self::Rendezvous,
        Self::Diverged,
    ];
}

/// What went wrong, and what to do about it.
#[derive(Debug)]
pub struct Error {
    /// What kind of error it is.
    pub kind: ErrorKind,
    /// What went wrong, and where.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The original error, for callers that need more than the message.
    pub cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// `std`'s `Result`, with [`Error`] by default.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with a kind and a message, without a hint.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, cause: None }
    }
    /// A bad command line.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }
    /// An invalid spec.
    pub fn spec(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Spec, message)
    }
    /// Missing or damaged data: the spec names the data, so the user corrects the spec or the file.
    pub fn data(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Spec, message)
    }
    /// A file that can't be read or written.
    pub fn io(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Io, message)
    }
    /// A checkpoint that can't be read, written or used.
    pub fn checkpoint(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Io, message)
    }
    /// A bug.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }
    /// A device or backend that this machine lacks.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }
    /// Adds a hint, printed on a separate line after `hint:`.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
    /// Keeps the original error.
    pub fn cause(mut self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.cause = Some(Box::new(cause));
        self
    }
    /// Converts an I/O error of a data file: if the file is missing or unreadable, the spec is
    /// wrong.
    pub fn of_data(self) -> Self {
        use std::io::ErrorKind as K;
        let lasting = [K::NotFound, K::PermissionDenied, K::IsADirectory, K::NotADirectory, K::InvalidInput];
        match self.caused_by::<std::io::Error>() {
            Some(e) if lasting.contains(&e.kind()) => Self { kind: ErrorKind::Spec, ..self },
            _ => self,
        }
    }
    /// Adds a hint if the message names a path with `~` or a variable, which only a shell expands.
    pub fn hint_of_unexpanded(mut self) -> Self {
        let words = self.message.split(|c: char| c.is_whitespace() || "`\"',;:=()".contains(c));
        if let Some(path) = words.into_iter().find(|word| is_unexpanded(word)) {
            let hint = format!(
                "`{path}` is taken as it stands: `~` and variables are not expanded; write the whole path"
            );
            self.hint = Some(self.hint.map_or(hint.clone(), |other| format!("{hint}; {other}")));
        }
        self
    }
    /// The original error, if it is an `E`.
    pub fn caused_by<E: std::error::Error + 'static>(&self) -> Option<&E> {
        self.cause.as_deref()?.downcast_ref()
    }
}

/// Whether a path has what only a shell expands: `~/data`, `$HOME/data`, `/data/${USER}`.
pub fn is_unexpanded(path: &str) -> bool {
    let is_name = |rest: &str| rest.starts_with(|c: char| c == '{' || c == '_' || c.is_ascii_alphabetic());
    let has_variable = || path.starts_with('$') || path.contains("/$");
    path == "~"
        || path.starts_with("~/")
        || path.contains("/~/")
        || has_variable() && path.split('$').skip(1).any(is_name)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

/// For conversions that can't fail.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// For `?` in users' crates; better is a message that names the file.
impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        Self::io(e.to_string()).cause(e)
    }
}

/// Adds the operation and the path to an I/O error: `fs::read(p).doing("read", p)?`. The cause
/// tells whether it may be temporary.
pub trait IoContext<T> {
    /// `verb`: the operation, in the infinitive ("read"); `path`: the file or folder it was applied to.
    fn doing(self, verb: &str, path: &std::path::Path) -> Result<T>;
}

impl<T> IoContext<T> for std::io::Result<T> {
    fn doing(self, verb: &str, path: &std::path::Path) -> Result<T> {
        self.map_err(|e| {
            let path = display::path(path);
            Error::io(format!("cannot {verb} {path}: {e}")).cause(e)
        })
    }
}

/// Whether an operation that failed with `e` may succeed later: a resource was exhausted, or a network file system
/// unavailable.
pub fn is_transient(e: &std::io::Error) -> bool {
    use std::io::ErrorKind as K;
    let kinds = [
        K::Interrupted,
        K::WouldBlock,
        K::TimedOut,
        K::OutOfMemory,
        K::ResourceBusy,
        K::StaleNetworkFileHandle,
        K::HostUnreachable,
        K::NetworkUnreachable,
        K::NetworkDown,
        K::ConnectionReset,
        K::ConnectionAborted,
    ];
    let short = [libc::EIO, libc::EMFILE, libc::ENFILE, libc::ENOBUFS];
    let behind = || e.get_ref()?.source()?.downcast_ref::<std::io::Error>();
    kinds.contains(&e.kind())
        || e.raw_os_error().is_some_and(|code| short.contains(&code))
        || behind().is_some_and(is_transient)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn failed(code: i32) -> Error {
        let failed: std::io::Result<()> = Err(std::io::Error::from_raw_os_error(code));
        failed.doing("read", Path::new("x")).expect_err("it failed")
    }

    #[test]
    fn kinds_are_listed_by_their_numbers() {
        assert!(ErrorKind::ALL.iter().enumerate().all(|(number, kind)| *kind as usize == number));
    }

    #[test]
    fn a_file_name_is_one_line_of_an_error() {
        let failed: std::io::Result<()> = Err(std::io::Error::other("no"));
        let error = failed.doing("read", Path::new("a\nerror: \u{1b}[31m")).unwrap_err();
        assert_eq!(error.message, "cannot read a·error: ·[31m: no");
    }

    #[test]
    fn paths_that_only_a_shell_expands_get_a_hint() {
        for path in ["~", "~/data", "/work/~/data", "$HOME/data", "/scratch/$USER/data", "${SCRATCH}/x"] {
            assert!(is_unexpanded(path), "{path}");
        }
        for path in ["data", "/data/~x", "a~/b", "/data/$", "cost$5", "~backup"] {
            assert!(!is_unexpanded(path), "{path}");
        }
        let hint = |message: &str| Error::data(message).hint_of_unexpanded().hint;
        let hinted = hint("cannot read ~/data/train.csv: No such file or directory");
        assert!(hinted.is_some_and(|hint| hint.starts_with("`~/data/train.csv` is taken as it stands")));
        assert_eq!(hint("cannot read data/train.csv: No such file or directory"), None);
    }

    #[test]
    fn io_errors_are_of_kind_io_and_transient_ones_are_recognised() {
        for (code, passes, of_data) in [
            (libc::ENOENT, false, ErrorKind::Spec),
            (libc::EACCES, false, ErrorKind::Spec),
            (libc::ENOSPC, false, ErrorKind::Io),
            (libc::EFBIG, false, ErrorKind::Io),
            (libc::EROFS, false, ErrorKind::Io),
            (libc::EIO, true, ErrorKind::Io),
            (libc::ESTALE, true, ErrorKind::Io),
            (libc::EMFILE, true, ErrorKind::Io),
        ] {
            let error = failed(code);
            assert_eq!(error.kind, ErrorKind::Io, "{error}");
            assert_eq!(error.caused_by().is_some_and(is_transient), passes, "{error}");
            assert_eq!(error.of_data().kind, of_data, "{code}");
        }
    }
}
