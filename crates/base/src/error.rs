//! The error type of the program.
//!
//! An [`Error`] says what went wrong, where, and what to do about it; `main` prints it once and exits with its
//! [`ExitCode`]. Crates with more detailed errors (`collectives::CommError`, `spec::Diagnostics`) convert them to this one.

use crate::display;
pub use crate::exit_code::ExitCode;
use std::convert::Infallible;
use std::fmt;

/// What went wrong, what to do about it, and the resulting exit code.
#[derive(Debug)]
pub struct Error {
    /// The exit code of the process.
    pub code: ExitCode,
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
    /// An error with a code and a message, without a hint.
    pub fn new(code: ExitCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, cause: None }
    }
    /// A bad command line (2).
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ExitCode::Usage, message)
    }
    /// An invalid spec (78).
    pub fn spec(message: impl Into<String>) -> Self {
        Self::new(ExitCode::Spec, message)
    }
    /// Missing or damaged data (78): the spec names the data, so the user corrects the spec or the file.
    pub fn data(message: impl Into<String>) -> Self {
        Self::new(ExitCode::Spec, message)
    }
    /// A checkpoint or another file that can't be read or written (74).
    pub fn checkpoint(message: impl Into<String>) -> Self {
        Self::new(ExitCode::Io, message)
    }
    /// A bug (70).
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ExitCode::Internal, message)
    }
    /// A device or backend that this machine lacks (69).
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ExitCode::Unavailable, message)
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
    /// Converts an I/O error of a data file: if the file is missing or unreadable, the spec is wrong (78).
    pub fn of_data(self) -> Self {
        use std::io::ErrorKind as K;
        let lasting = [K::NotFound, K::PermissionDenied, K::IsADirectory, K::NotADirectory, K::InvalidInput];
        match self.caused_by::<std::io::Error>() {
            Some(e) if lasting.contains(&e.kind()) => Self { code: ExitCode::Spec, ..self },
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

/// For `?` in users' crates; better is a message that names the file.
/// For conversions that can't fail.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        Self::checkpoint(e.to_string()).cause(e)
    }
}

/// Adds the operation and the path to an I/O error: `fs::read(p).doing("read", p)?`. Exit code 74; the cause tells
/// whether it may be temporary.
pub trait IoContext<T> {
    /// `verb`: the operation, in the infinitive ("read"); `path`: the file or folder it was applied to.
    fn doing(self, verb: &str, path: &std::path::Path) -> Result<T>;
}

impl<T> IoContext<T> for std::io::Result<T> {
    fn doing(self, verb: &str, path: &std::path::Path) -> Result<T> {
        self.map_err(|e| {
            let path = display::path(path);
            Error::checkpoint(format!("cannot {verb} {path}: {e}")).cause(e)
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
    fn io_errors_are_exit_74_and_transient_ones_are_recognised() {
        for (code, passes, of_data) in [
            (libc::ENOENT, false, ExitCode::Spec),
            (libc::EACCES, false, ExitCode::Spec),
            (libc::ENOSPC, false, ExitCode::Io),
            (libc::EFBIG, false, ExitCode::Io),
            (libc::EROFS, false, ExitCode::Io),
            (libc::EIO, true, ExitCode::Io),
            (libc::ESTALE, true, ExitCode::Io),
            (libc::EMFILE, true, ExitCode::Io),
        ] {
            let error = failed(code);
            assert_eq!(error.code, ExitCode::Io, "{error}");
            assert_eq!(error.caused_by().is_some_and(is_transient), passes, "{error}");
            assert_eq!(error.of_data().code, of_data, "{code}");
        }
    }
}
