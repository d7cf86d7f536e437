//! Reads tables in tests.

use super::{Fields, JobTree};

/// Reads `text` as one table. Returns the value and all problems as text (empty if none).
pub fn read<T>(text: &str, configure: impl FnOnce(&mut Fields<'_>) -> T) -> (T, String) {
    let tree = JobTree::parse("test.toml", text, &[]);
    let mut made = None;
    let problems = tree.read(|fields| made = Some(configure(fields)));
    let problems = problems.err().map(|e| e.to_string()).unwrap_or_default();
    (made.expect("configure was called"), problems)
}
