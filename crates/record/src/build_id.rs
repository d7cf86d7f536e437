//! The build ID that the linker gives a program: a digest of what it was linked from. Two builds of the same version have different ones.

use data_encoding::HEXLOWER;

/// The build ID of this program, in hexadecimal; `None` if its linker wrote none.
pub fn build_id() -> Option<String> {
    buildid::build_id().map(|id| HEXLOWER.encode(id))
}

#[cfg(test)]
mod tests {
    /// It is at least as long as the shortest kind in use.
    #[test]
    fn the_linker_of_tests_writes_one() {
        let id = super::build_id();
        assert!(id.is_none_or(|id| id.len() >= 16 && id.chars().all(|c| c.is_ascii_hexdigit())));
    }
}
