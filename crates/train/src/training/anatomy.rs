//! How the time of a rank's steps divides, from the clock, read at each change of phase. In steps that are logged the
//! ranks exchange their means, apart from everything that results depend on.

use collectives::{CommError, Phase, ProcessGroup};
use ddp::AveragingTime;
use record::RankTimes;
use std::time::{Duration, Instant};

/// What the training thread does; in the order of the fields of [`RankTimes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepPart {
    Data,
    Forward,
    Backward,
    Comm,
    Optimizer,
    Checkpoint,
    Other,
}

const PARTS: usize = 7;

impl From<Phase> for StepPart {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Data => Self::Data,
            Phase::Forward => Self::Forward,
            Phase::Backward => Self::Backward,
            Phase::Sync => Self::Comm,
            Phase::Update => Self::Optimizer,
            Phase::Save => Self::Checkpoint,
            Phase::Setup | Phase::Evaluate | Phase::Generate | Phase::Finish => Self::Other,
        }
    }
}

/// The times of all ranks since the previous step that was logged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepAnatomy {
    /// Number of steps.
    pub steps: u64,
    /// Seconds per step.
    pub times: RankTimes,
    /// The fraction of the averaging of gradients that ran during the backward pass, over all ranks, 0 to 1; `None` for a
    /// single rank, and where the averaging does not run on a thread of the host.
    pub overlap: Option<f64>,
}

/// The clock of a rank's training thread: times since the last step that was logged.
#[derive(Debug, Default)]
pub(super) struct PhaseClock {
    /// What the thread does, and since when.
    current: Option<(StepPart, Instant)>,
    parts: [Duration; PARTS],
    steps: u64,
}

impl PhaseClock {
    /// The thread does something else from now on.
    pub fn reach(&mut self, part: StepPart) {
        self.reach_at(part, Instant::now());
    }

    fn reach_at(&mut self, part: StepPart, now: Instant) {
        if let Some((last, since)) = self.current.replace((part, now)) {
            self.parts[last as usize] += now.saturating_duration_since(since);
        }
    }

    pub fn count_step(&mut self) {
        self.steps += 1;
    }

    /// The number of steps and the seconds per step; the times begin anew.
    fn take(&mut self) -> (u64, [f64; PARTS]) {
        let (steps, parts) = (std::mem::take(&mut self.steps), std::mem::take(&mut self.parts));
        (steps, parts.map(|part| part.as_secs_f64() / steps.max(1) as f64))
    }

    /// Takes the times and exchanges them. A collective: all ranks call it after the same steps. The time that ends
    /// here is communication.
    ///
    /// # Errors
    /// A failed collective.
    pub fn exchange(
        &mut self,
        averaging: AveragingTime,
        group: &dyn ProcessGroup,
    ) -> Result<StepAnatomy, CommError> {
        self.reach(StepPart::Comm);
        let (steps, parts) = self.take();
        let AveragingTime { exposed, total } = averaging;
        let own: Vec<f64> = parts.into_iter().chain([exposed, total].map(|t| t.as_secs_f64())).collect();
        let mut all = own.clone();
        if group.world_size() > 1 {
            all.resize(own.len() * group.world_size(), 0.0);
            group.all_gather(own.as_slice().into(), all.as_mut_slice().into())?;
        }
        Ok(of_ranks(steps, &all))
    }
}

/// From the parts and the averaging time of each rank, in rank order.
fn of_ranks(steps: u64, all: &[f64]) -> StepAnatomy {
    let ranks: Vec<&[f64]> = all.chunks_exact(PARTS + 2).collect();
    // To the microsecond, because lines of all ranks are long.
    let of = |part: StepPart| ranks.iter().map(|rank| (rank[part as usize] * 1e6).round() / 1e6).collect();
    let sum = |at: usize| ranks.iter().map(|rank| rank[at]).sum::<f64>();
    let (exposed, total) = (sum(PARTS), sum(PARTS + 1));
    StepAnatomy {
        steps,
        times: RankTimes {
            data: of(StepPart::Data),
            forward: of(StepPart::Forward),
            backward: of(StepPart::Backward),
            comm: of(StepPart::Comm),
            optimizer: of(StepPart::Optimizer),
            checkpoint: of(StepPart::Checkpoint),
            other: of(StepPart::Other),
        },
        overlap: (ranks.len() > 1 && total > 0.0).then(|| (1.0 - exposed / total).clamp(0.0, 1.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use collectives::SoloGroup;

    #[test]
    fn parts_add_up_to_the_whole_time() {
        let (mut clock, begin) = (PhaseClock::default(), Instant::now());
        let mut reach = |part: StepPart, ms| clock.reach_at(part, begin + Duration::from_millis(ms));
        // Two micro-batches, a save and an evaluation, in two steps.
        for (phase, ms) in [
            (Phase::Data, 5),
            (Phase::Forward, 6),
            (Phase::Backward, 8),
            (Phase::Data, 12),
            (Phase::Forward, 13),
            (Phase::Backward, 16),
            (Phase::Sync, 21),
            (Phase::Update, 24),
            (Phase::Save, 30),
            (Phase::Evaluate, 40),
        ] {
            reach(phase.into(), ms);
        }
        reach(StepPart::Other, 70);
        reach(StepPart::Data, 105);
        clock.steps = 2;
        let (steps, parts) = clock.take();
        assert_eq!(steps, 2);
        let ms = parts.map(|seconds| (seconds * 2e3).round() as u64);
        assert_eq!(ms, [2, 5, 9, 3, 6, 10, 65]);
        assert_eq!(ms.iter().sum::<u64>(), 100);
        // The next times begin where these ended.
        clock.reach_at(StepPart::Forward, begin + Duration::from_millis(108));
        clock.steps = 1;
        assert_eq!(clock.take().1.map(|s| (s * 1e3).round() as u64), [3, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn the_values_of_ranks_stay_apart() {
        let rank = |first: f64, exposed: f64| {
            let parts = (0..PARTS).map(move |i| first + i as f64);
            parts.chain([exposed, 2.0]).collect::<Vec<_>>()
        };
        let anatomy = of_ranks(10, &[rank(1.0, 0.5), rank(11.0, 1.5)].concat());
        let parts = anatomy.times.parts();
        assert_eq!(parts[0], ("data", &[1.0, 11.0][..]));
        assert_eq!(parts[6], ("other", &[7.0, 17.0][..]));
        assert_eq!((anatomy.steps, anatomy.overlap), (10, Some(0.5)));
        // All of it was waited for, and something else besides.
        assert_eq!(of_ranks(1, &[rank(0.0, 2.5), rank(0.0, 2.0)].concat()).overlap, Some(0.0));
    }

    #[test]
    fn a_single_rank_has_no_overlap() {
        let mut clock = PhaseClock::default();
        clock.reach(StepPart::Data);
        clock.count_step();
        let averaging = AveragingTime { exposed: Duration::ZERO, total: Duration::from_secs(1) };
        let anatomy = clock.exchange(averaging, &SoloGroup::default()).unwrap();
        assert_eq!((anatomy.steps, anatomy.times.ranks(), anatomy.overlap), (1, 1, None));
    }
}
