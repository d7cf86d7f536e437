//! The launcher's own process above this one. Ranks whose launcher was killed wait for others that may never come.

use crate::{ProcessStat, StopFlag};
use std::time::Duration;

/// The beginnings of the names of launchers' processes, of those that start ranks.
const LAUNCHERS: [&str; 9] =
    ["mpirun", "mpiexec", "orterun", "orted", "prterun", "prted", "hydra_pmi_prox", "torchrun", "pt_elastic"];
/// Interval between two checks.
const INTERVAL: Duration = Duration::from_millis(500);

/// A process that has started this one, directly or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ancestor(ProcessStat);

impl Ancestor {
    /// The nearest launcher above this process; `None` if there is none, or no `/proc`.
    pub fn launcher() -> Option<Self> {
        Self::above(std::os::unix::process::parent_id())
    }

    /// Shells and wrappers between a launcher and its rank are looked through.
    fn above(parent: u32) -> Option<Self> {
        let launches = |stat: &ProcessStat| LAUNCHERS.iter().any(|name| stat.name.starts_with(name));
        ProcessStat::upwards_from(parent).find(launches).map(Self)
    }

    fn lives(&self) -> bool {
        ProcessStat::of_process(self.0.pid)
            .is_some_and(|stat| stat.started == self.0.started && !stat.has_ended())
    }

    /// Calls `gone`, with what to tell the user, if this process ends before the ranks have met.
    pub fn watch(self, stop: &StopFlag, gone: impl FnOnce(String) + Send + 'static) {
        let stop = stop.clone();
        let run = move || {
            while stop.is_before_rendezvous() {
                if !self.lives() {
                    let ProcessStat { pid, name, .. } = &self.0;
                    return gone(format!(
                        "{name}, which started this rank (process {pid}), has ended before all ranks had connected"
                    ));
                }
                std::thread::sleep(INTERVAL);
            }
        };
        // Without the thread, the ranks wait for init_timeout.
        let _ = std::thread::Builder::new().name("launcher".into()).spawn(run);
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use base::testing::HANG;
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::symlink;
    use std::process::{Command, Stdio};
    use std::sync::mpsc::channel;

    /// A shell named as `mpirun`, which starts another one, which starts a process.
    #[test]
    fn a_launcher_that_is_killed_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let mpirun = dir.path().join("mpirun.test");
        symlink("/bin/sh", &mpirun).unwrap();
        let mut command = Command::new(&mpirun);
        command.args(["-c", "sh -c 'cat <&3 >/dev/null & echo $!; wait' 3<&0; true"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let rank: u32 = line.trim().parse().unwrap();
        let parent = ProcessStat::of_process(rank).unwrap().parent;
        assert_ne!(parent, child.id(), "there is a shell in between");
        let launcher = Ancestor::above(parent).expect("its launcher is found");
        assert_eq!((launcher.0.pid, launcher.0.name.as_str()), (child.id(), "mpirun.test"));
        let (tell, told) = channel();
        launcher.watch(&StopFlag::new(), move |why| drop(tell.send(why)));
        // It stays a zombie: nobody waits for it yet.
        child.kill().unwrap();
        let why = told.recv_timeout(HANG).expect("it is noticed");
        assert!(why.starts_with("mpirun.test, which started this rank (process "), "{why}");
        child.wait().unwrap();
    }

    #[test]
    fn after_the_rendezvous_a_launcher_is_not_watched() {
        let own = std::process::id();
        let stat = ProcessStat::of_process(own).unwrap();
        let gone = Ancestor(ProcessStat { started: "another".into(), ..stat });
        let stop = StopFlag::new();
        stop.connected();
        let (tell, told) = channel();
        gone.watch(&stop, move |why| drop(tell.send(why)));
        assert!(told.recv_timeout(HANG).is_err(), "the sender is dropped unused");
    }
}
