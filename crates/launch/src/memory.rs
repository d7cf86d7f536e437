//! The memory that this process may use: the machine's, or the limit of its control group if that is lower.

use record::memory_of;
use std::path::Path;

/// The memory of this machine, as far as processes may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsableMemory {
    /// Bytes, at most what the machine has.
    pub bytes: u64,
    /// Whether a control group limits it: the machine has more.
    pub limited: bool,
}

/// `None` if unknown.
pub fn usable() -> Option<UsableMemory> {
    least(total(), limit())
}

fn least(total: Option<u64>, limit: Option<u64>) -> Option<UsableMemory> {
    let limited = limit.is_some_and(|limit| total.is_none_or(|total| limit < total));
    let bytes = if limited { limit } else { total };
    bytes.map(|bytes| UsableMemory { bytes, limited })
}

/// In bytes; `None` if unknown.
pub fn total() -> Option<u64> {
    memory_of(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemTotal")
}

/// The lowest limit of this process's control groups, in bytes; `None` without a limit.
pub fn limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    limit_of(&groups, Path::new("/sys/fs/cgroup"))
}

/// `groups` is the content of /proc/PID/cgroup: `0::/a/b` (version 2), `4:memory:/a/b` (version 1). A group's limit
/// applies to its descendants, too.
fn limit_of(groups: &str, root: &Path) -> Option<u64> {
    let least = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            c if c.split(',').any(|c| c == "memory") => (root.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        let group = root.join(path.trim_start_matches('/'));
        let up = group.ancestors().take_while(|g| g.starts_with(&root));
        up.filter_map(|g| std::fs::read_to_string(g.join(file)).ok()?.trim().parse::<u64>().ok()).min()
    });
    // Version 1 represents "no limit" by the largest multiple of a page.
    least.min().filter(|limit| *limit < 1 << 62)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_lower_of_memory_and_limit_counts() {
        let of = |bytes, limited| Some(UsableMemory { bytes, limited });
        assert_eq!(least(Some(8), Some(4)), of(4, true));
        assert_eq!(least(Some(8), Some(9)), of(8, false));
        assert_eq!(least(Some(8), None), of(8, false));
        assert_eq!(least(None, Some(9)), of(9, true));
        assert_eq!(least(None, None), None);
    }

    #[test]
    fn takes_the_lowest_limit_of_a_group_and_its_ancestors() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/memory.max", "1000\n");
        write("a/b/memory.max", "max\n");
        assert_eq!(limit_of("0::/a/b\n", dir.path()), Some(1000));
        assert_eq!(limit_of("0::/\n", dir.path()), None);
        write("memory/c/memory.limit_in_bytes", "700\n");
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(limit_of("5:cpu:/c\n4:memory:/c\n0::/a\n", dir.path()), Some(700));
        assert_eq!(limit_of("4:memory:/\n", dir.path()), None, "no limit");
    }
}
