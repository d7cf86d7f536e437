//! How many floating-point operations the devices of all ranks can do in a second, by which those of the model are a share.

use ddp::device::{ComputeDevice, Precision, peak_flops_per_s};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Of the device of one rank.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Capacity {
    flops_per_s: f64,
    /// On the CPU.
    threads: usize,
    /// The processors that the rank may run on; of the CPU only.
    processors: BTreeSet<usize>,
}

impl Capacity {
    /// That of this rank; `None` if it is not known. All ranks measure at the same time.
    pub fn measured(device: ComputeDevice, precision: Precision, shared: bool) -> Option<Self> {
        let is_cpu = device == ComputeDevice::Cpu;
        if shared && !is_cpu {
            return None;
        }
        let flops_per_s = peak_flops_per_s(device, precision)?;
        let processors = if is_cpu { processors() } else { BTreeSet::new() };
        Some(Self { flops_per_s, threads: rayon::current_num_threads(), processors })
    }

    /// That of all ranks with the names of their hosts; `None` if one is not known. A host does not do more than its processors, however
    /// many threads its ranks have.
    pub fn total<'a>(ranks: impl Iterator<Item = (&'a str, Option<&'a Self>)>) -> Option<f64> {
        let mut hosts: BTreeMap<&str, (f64, usize, BTreeSet<usize>)> = BTreeMap::new();
        for (host, capacity) in ranks {
            let capacity = capacity?;
            let (flops, threads, processors) = hosts.entry(host).or_default();
            *flops += capacity.flops_per_s;
            *threads += capacity.threads;
            processors.extend(&capacity.processors);
        }
        let of_host = |(flops, threads, processors): &(f64, usize, BTreeSet<usize>)| {
            let at_once = if processors.is_empty() { *threads } else { processors.len().min(*threads) };
            flops * at_once as f64 / *threads as f64
        };
        Some(hosts.values().map(of_host).sum())
    }
}

/// Those that this process may run on.
fn processors() -> BTreeSet<usize> {
    #[cfg(target_os = "linux")]
    if let Ok(set) = rustix::thread::sched_getaffinity(None) {
        return (0..rustix::thread::CpuSet::MAX_CPU).filter(|at| set.is_set(*at)).collect();
    }
    (0..std::thread::available_parallelism().map_or(1, usize::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(flops_per_s: f64, threads: usize, processors: &[usize]) -> Capacity {
        Capacity { flops_per_s, threads, processors: processors.iter().copied().collect() }
    }

    fn total(ranks: &[(&str, Capacity)]) -> Option<f64> {
        Capacity::total(ranks.iter().map(|(host, capacity)| (*host, Some(capacity))))
    }

    #[test]
    fn a_host_does_no_more_than_its_processors() {
        let both = [0, 1];
        assert_eq!(total(&[("a", rank(5.0, 1, &both)), ("a", rank(7.0, 1, &both))]), Some(12.0));
        // Each has one processor of its own.
        assert_eq!(total(&[("a", rank(5.0, 1, &[0])), ("a", rank(7.0, 1, &[1]))]), Some(12.0));
        // They share one.
        assert_eq!(total(&[("a", rank(5.0, 1, &[0])), ("a", rank(7.0, 1, &[0]))]), Some(6.0));
        // Eight threads on two processors, beside a host of its own.
        let mut ranks = vec![("a", rank(10.0, 2, &both)); 4];
        ranks.push(("b", rank(3.0, 1, &[0])));
        assert_eq!(total(&ranks), Some(13.0));
        // Cards.
        assert_eq!(total(&[("a", rank(900.0, 8, &[])), ("a", rank(900.0, 8, &[]))]), Some(1800.0));
        let unknown = [("a", Some(rank(5.0, 1, &both))), ("a", None)];
        assert_eq!(Capacity::total(unknown.iter().map(|(host, rank)| (*host, rank.as_ref()))), None);
    }

    #[test]
    fn the_cpu_is_measured_and_a_shared_card_is_not_known() {
        let own = Capacity::measured(ComputeDevice::Cpu, Precision::F32, true).unwrap();
        assert!(own.flops_per_s > 0.0 && !own.processors.is_empty());
        assert!(Capacity::measured(ComputeDevice::Cuda(0), Precision::Bf16, true).is_none());
    }
}
