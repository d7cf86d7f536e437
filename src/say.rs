//! Lines for the one who watches, on standard error. A terminal or a pipe that is gone is no reason not to train, so nothing here
//! can fail: `eprintln!` would panic.

use std::fmt;
use std::io::Write;

/// As `eprintln!`, but what can't be written is left out.
macro_rules! say {
    ($($arg:tt)*) => { $crate::say::line(format_args!($($arg)*)) };
}
pub(crate) fn line(text: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
