//! Ranks that are slower than the others, by the times that are exchanged in logged steps.

use super::StepAnatomy;
use std::fmt;

/// From how many times the others' median on a rank is slow.
const RATIO: f64 = 1.25;
/// For how many exchanges in a row, and for how many seconds of steps, it is slow before it is named.
const WINDOWS: u32 = 3;
const SECONDS: f64 = 10.0;
/// Which part of the difference the others have to wait for it. On a device, the host only enqueues the passes: it may take
/// its time while the device is busy, and no rank waits.
const WAITED: f64 = 0.5;

/// A rank that was slow for a while.
#[derive(Clone, Debug, PartialEq)]
pub struct Straggler {
    pub rank: usize,
    /// Seconds per step for its batches, forward and backward passes.
    pub seconds: f64,
    /// That, divided by the median of the other ranks.
    pub ratio: f64,
    /// The part with the largest difference from the median of the other ranks.
    pub part: &'static str,
}

/// Which ranks are slow, and which have been named.
#[derive(Debug, Default)]
pub struct Stragglers(Vec<Slow>);

/// Since when a rank is slow.
#[derive(Clone, Debug, Default)]
struct Slow {
    windows: u32,
    seconds: f64,
    named: bool,
}

impl Stragglers {
    /// The ranks to be named after these steps; each is named once.
    pub fn after(&mut self, anatomy: &StepAnatomy) -> Vec<Straggler> {
        self.0.resize(anatomy.times.ranks(), Slow::default());
        let slow = slow(anatomy);
        let mut found = Vec::new();
        for (rank, state) in self.0.iter_mut().enumerate() {
            let Some(straggler) = slow.iter().find(|s| s.rank == rank) else {
                *state = Slow { named: state.named, ..Slow::default() };
                continue;
            };
            state.windows += 1;
            state.seconds += straggler.seconds * anatomy.steps as f64;
            if !state.named && state.windows >= WINDOWS && state.seconds >= SECONDS {
                state.named = true;
                found.push(straggler.clone());
            }
        }
        found
    }
}

/// The ranks that are slow in these steps. Waiting for others is not counted: it is in `comm`, where the others have to wait
/// for a slow one.
fn slow(anatomy: &StepAnatomy) -> Vec<Straggler> {
    let [data, forward, backward, (_, comm), ..] = anatomy.times.parts();
    let own = [data, forward, backward];
    let total: Vec<f64> =
        (0..anatomy.times.ranks()).map(|rank| own.iter().map(|(_, of)| of[rank]).sum()).collect();
    let of_rank = |rank: usize| {
        let seconds = total[rank];
        let others = median_without(&total, rank)?;
        let (ratio, waited) = (seconds / others, median_without(comm, rank)? - comm[rank]);
        let excess = |of: &[f64]| of[rank] - median_without(of, rank).unwrap_or(0.0);
        let (part, _) = own.iter().max_by(|a, b| excess(a.1).total_cmp(&excess(b.1)))?;
        let is_slow = ratio > RATIO && waited >= WAITED * (seconds - others);
        is_slow.then_some(Straggler { rank, seconds, ratio, part })
    };
    (0..total.len()).filter_map(of_rank).collect()
}

/// The median of all values except one; `None` if there are no others.
fn median_without(values: &[f64], without: usize) -> Option<f64> {
    let mut others: Vec<f64> =
        values.iter().enumerate().filter(|(i, _)| *i != without).map(|(_, value)| *value).collect();
    others.sort_by(f64::total_cmp);
    let middle = others.len() / 2;
    match others.len() {
        0 => None,
        n if n % 2 == 1 => Some(others[middle]),
        _ => Some((others[middle - 1] + others[middle]) / 2.0),
    }
}

impl fmt::Display for Straggler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seconds, ratio, part, .. } = self;
        let part = match *part {
            "data" => "waiting for data".to_owned(),
            pass => format!("the {pass} pass"),
        };
        write!(
            f,
            "{:.0} ms a step for its batches, forward and backward passes, {ratio:.2} times as long as the other ranks \
             (median); most of the difference is {part}",
            seconds * 1e3
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::RankTimes;

    /// Times per step of forward passes, with equal ones for the rest.
    fn steps(steps: u64, forward: &[f64]) -> StepAnatomy {
        let same = |seconds| vec![seconds; forward.len()];
        let times = RankTimes {
            data: same(0.1),
            forward: forward.to_vec(),
            backward: same(0.4),
            comm: forward.iter().map(|own| 5.0 - own).collect(),
            optimizer: same(0.1),
            checkpoint: same(0.0),
            other: same(0.0),
        };
        StepAnatomy { steps, times, overlap: None }
    }

    #[test]
    fn a_rank_that_stays_slow_is_named_once() {
        let mut stragglers = Stragglers::default();
        let late = steps(10, &[0.5, 0.5, 1.5, 0.6]);
        assert_eq!(stragglers.after(&late), []);
        assert_eq!(stragglers.after(&late), []);
        let found = stragglers.after(&late);
        let [of] = &found[..] else { panic!("one rank: {found:?}") };
        assert_eq!((of.rank, of.part), (2, "forward"));
        assert!((of.seconds - 2.0).abs() < 1e-9 && (of.ratio - 2.0).abs() < 1e-9, "{of:?}");
        assert_eq!(
            of.to_string(),
            "2000 ms a step for its batches, forward and backward passes, 2.00 times as long as the other ranks \
             (median); most of the difference is the forward pass"
        );
        for _ in 0..5 {
            assert_eq!(stragglers.after(&late), []);
        }
    }

    #[test]
    fn a_rank_that_is_slow_now_and_then_is_not_named() {
        let mut stragglers = Stragglers::default();
        for _ in 0..5 {
            assert_eq!(stragglers.after(&steps(10, &[0.5, 1.5])), []);
            assert_eq!(stragglers.after(&steps(10, &[0.5, 1.5])), []);
            assert_eq!(stragglers.after(&steps(10, &[0.5, 0.5])), []);
        }
    }

    #[test]
    fn a_rank_that_nobody_waits_for_is_not_slow() {
        let mut anatomy = steps(10, &[0.5, 1.5, 0.5]);
        assert_eq!(slow(&anatomy).len(), 1);
        // All wait for their devices.
        anatomy.times.comm = vec![4.5, 4.4, 4.5];
        assert_eq!(slow(&anatomy), []);
    }

    #[test]
    fn short_windows_have_to_be_many() {
        let mut stragglers = Stragglers::default();
        let late = steps(1, &[0.5, 1.5]);
        let named = (1..10).find(|_| !stragglers.after(&late).is_empty());
        assert_eq!(named, Some(5), "five steps of two seconds");
    }

    #[test]
    fn small_differences_and_single_ranks_are_fine() {
        assert_eq!(slow(&steps(10, &[0.5, 0.7])), []);
        assert_eq!(slow(&steps(10, &[0.5])), []);
        assert_eq!(median_without(&[1.0, 9.0, 3.0, 2.0], 1), Some(2.0));
        assert_eq!(median_without(&[1.0, 9.0, 3.0], 1), Some(2.0));
    }
}
