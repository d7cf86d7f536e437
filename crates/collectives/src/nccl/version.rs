//! NCCL version numbers.

use std::ffi::c_int;
use std::fmt;

/// `22703` is 2.27.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NcclVersion(pub c_int);

impl NcclVersion {
    /// Ranks whose libraries differ in these cannot communicate.
    pub(super) fn major_minor(self) -> (c_int, c_int) {
        // Versions before 2.9 have one digit less.
        if self.0 < 10_000 {
            (self.0 / 1000, self.0 / 100 % 10)
        } else {
            (self.0 / 10_000, self.0 / 100 % 100)
        }
    }
}

impl fmt::Display for NcclVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.major_minor();
        write!(f, "{major}.{minor}.{}", self.0 % 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_displayed_as_by_nccl() {
        let read = |code| NcclVersion(code).to_string();
        assert_eq!([read(22703), read(21805), read(2804)], ["2.27.3", "2.18.5", "2.8.4"]);
    }
}
