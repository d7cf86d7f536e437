//! What the system says of a process, in `/proc/PID/stat`.

/// Longest line of processes above one another that is followed.
const MAX_DEPTH: usize = 16;

/// Some fields of `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// The process id.
    pub pid: u32,
    /// Truncated to 15 characters.
    pub name: String,
    /// The letter of its state, such as `T` for one that is stopped.
    pub state: char,
    /// The process id of its parent.
    pub parent: u32,
    /// The process group.
    pub group: u32,
    /// In clock ticks since the system's start; distinguishes it from a later process with its number.
    pub started: String,
}

impl ProcessStat {
    /// `None` if there is no such process, or no `/proc`.
    pub fn of_process(pid: u32) -> Option<Self> {
        Self::read(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// `PID (NAME) STATE PPID …`; the name may contain any character.
    fn read(text: &str) -> Option<Self> {
        let (head, tail) = text.rsplit_once(") ")?;
        let (pid, name) = head.split_once(" (")?;
        let fields: Vec<&str> = tail.split_whitespace().collect();
        Some(Self {
            pid: pid.parse().ok()?,
            name: name.to_owned(),
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            started: (*fields.get(19)?).to_owned(),
        })
    }

    /// The process `pid` and those above it, nearest first.
    pub fn upwards_from(pid: u32) -> impl Iterator<Item = Self> {
        let above = |stat: &Self| Some(stat.parent).filter(|parent| *parent > 1).and_then(Self::of_process);
        std::iter::successors(Self::of_process(pid), above).take(MAX_DEPTH)
    }

    /// All processes; none without `/proc`.
    pub fn all() -> impl Iterator<Item = Self> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| Self::of_process(entry.file_name().to_str()?.parse().ok()?))
    }

    /// Whether it has ended, and its parent has not asked for its status yet.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_any_characters() {
        let text = "12 (a ) b) T 7 11 10 0 -1 4194304 1 0 0 0 1 2 0 0 20 0 1 0 98765 8192 100\n";
        let stat = ProcessStat::read(text).unwrap();
        assert_eq!((stat.pid, &*stat.name, stat.state, stat.parent), (12, "a ) b", 'T', 7));
        assert_eq!((stat.group, &*stat.started, stat.has_ended()), (11, "98765", false));
        assert!(ProcessStat::all().any(|stat| stat.pid == std::process::id()) || !cfg!(target_os = "linux"));
        assert_eq!(ProcessStat::read(""), None);
    }
}
