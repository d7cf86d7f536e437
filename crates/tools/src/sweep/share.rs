//! How children that run at the same time share this machine's cores and CUDA devices. Pure functions.

use base::error::{Error, Result};
use launch::Nproc;

/// What each slot of the sweep has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Values of CUDA_VISIBLE_DEVICES, one per slot; `None` where children see the same devices as the sweep.
    pub devices: Vec<Option<String>>,
    /// Processes of a child.
    pub processes: usize,
    /// Compute threads of each process.
    pub threads: usize,
}

/// What a sweep may use.
#[derive(Clone, Debug)]
pub struct Machine {
    pub cores: usize,
    /// CUDA devices as CUDA_VISIBLE_DEVICES names them; empty where children compute on something else, or on one that the spec names.
    pub cuda: Vec<String>,
    /// Devices of another kind, which all children see.
    pub others: usize,
}

impl Machine {
    /// The parts of `parallel` children whose spec asks for `nproc` processes; `shared` is `launch.share_devices`.
    ///
    /// # Errors
    /// There are fewer CUDA devices than children (exit code 2), or `gpu` without one (69).
    pub fn share(&self, parallel: usize, nproc: Nproc, shared: bool) -> Result<Share> {
        let parallel = parallel.max(1);
        let cores = (self.cores / parallel).max(1);
        // Devices of one child.
        let each = match nproc {
            Nproc::Count(n) => n,
            _ => (self.cuda.len() / parallel).max(1),
        };
        let alone = parallel == 1 || self.cuda.is_empty();
        if !alone && !shared && each * parallel > self.cuda.len() {
            let have = base::display::count(self.cuda.len(), "CUDA device");
            return Err(Error::usage(format!(
                "{parallel} runs at a time with {each} each need more than the {have} here"
            ))
            .hint("a smaller `--parallel`, or `--set launch.share_devices=true`"));
        }
        let part = |slot: usize| {
            let own: Vec<&str> = self.cuda[slot * each..][..each].iter().map(String::as_str).collect();
            own.join(",")
        };
        let split = !alone && each * parallel <= self.cuda.len();
        let seen = match (split, self.cuda.is_empty()) {
            (true, _) => each,
            (false, false) => self.cuda.len(),
            (false, true) => self.others,
        };
        let processes = nproc.resolve(cores, || seen)?;
        Ok(Share {
            devices: (0..parallel).map(|slot| split.then(|| part(slot))).collect(),
            processes,
            threads: (cores / processes).max(1),
        })
    }
}

/// The names of `count` CUDA devices that this process sees.
pub fn cuda_names(count: usize, visible: Option<&str>) -> Vec<String> {
    let named = visible.map(|text| text.split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>());
    match named {
        // CUDA ignores the names after one that does not exist.
        Some(names) if names.len() >= count => names.into_iter().take(count).collect(),
        _ => (0..count).map(|index| index.to_string()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::ErrorKind;

    fn machine(cuda: usize) -> Machine {
        Machine { cores: 8, cuda: cuda_names(cuda, None), others: 0 }
    }

    fn devices(share: &Share) -> Vec<&str> {
        share.devices.iter().map(|it| it.as_deref().unwrap_or("all")).collect()
    }

    #[test]
    fn cores_are_divided_among_children_and_their_processes() {
        let share = machine(0).share(2, Nproc::Count(2), false).unwrap();
        assert_eq!((share.processes, share.threads, devices(&share)), (2, 2, vec!["all", "all"]));
        assert_eq!(machine(0).share(1, Nproc::Devices, false).unwrap().threads, 8);
        assert_eq!(machine(0).share(20, Nproc::Devices, false).unwrap().threads, 1);
        assert_eq!(machine(0).share(4, Nproc::Auto, false).unwrap().processes, 2);
    }

    #[test]
    fn devices_are_divided_among_children() {
        let share = machine(4).share(2, Nproc::Devices, false).unwrap();
        assert_eq!((devices(&share), share.processes), (vec!["0,1", "2,3"], 2));
        let share = machine(4).share(3, Nproc::Count(1), false).unwrap();
        assert_eq!((devices(&share), share.processes), (vec!["0", "1", "2"], 1));
        assert_eq!(devices(&machine(4).share(1, Nproc::Devices, false).unwrap()), ["all"]);
        let few = machine(1).share(2, Nproc::Devices, false).unwrap_err();
        assert_eq!((few.kind, few.message.contains("1 CUDA device here")), (ErrorKind::Usage, true), "{few}");
        let shared = machine(1).share(2, Nproc::Devices, true).unwrap();
        assert_eq!((devices(&shared), shared.processes), (vec!["all", "all"], 1));
    }

    #[test]
    fn devices_have_the_names_of_the_environment() {
        assert_eq!(cuda_names(2, Some("3, GPU-8f")), ["3", "GPU-8f"]);
        assert_eq!(cuda_names(2, Some("5,4,3")), ["5", "4"]);
        assert_eq!(cuda_names(2, None), ["0", "1"]);
    }
}
