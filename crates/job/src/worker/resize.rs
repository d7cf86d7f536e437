//! Resumes a run with another number of processes, or with another batch size in the spec.

use super::state::SavedState;
use train::training::{Batching, OnResize, Position};

impl SavedState {
    /// The position in this run's batching, after the finished samples, and a description of the change. `spec` is the
    /// spec's batching on this run's processes, `samples` the size of an epoch. A `batch_size` or `accumulate` that was
    /// edited in the spec is used unchanged.
    pub fn resume_with(
        self,
        spec: Batching,
        on_resize: OnResize,
        drop_last: bool,
        samples: usize,
    ) -> (Position, Option<String>) {
        let mut position = self.position;
        let before = position.batching;
        let now = match (self.batch_size, self.accumulate) == (spec.batch_size, spec.accumulate) {
            true => before.on(spec.world, spec.accumulate, on_resize),
            false => spec,
        };
        position.regroup(now, samples, drop_last);
        (position, now.change_from(&before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::testing::{self, SPEC};
    use data::Fingerprint;

    /// A resume of [`saved`] on `world` processes, with these values of the spec.
    fn resumed(sets: &[&str], world: usize) -> (Position, Option<String>) {
        let plan = testing::plan(SPEC, &[&["batch_size=4"], sets].concat(), 1);
        saved().resume_with(plan.batching(world), plan.train.on_resize, plan.loader.drop_last, 96)
    }

    /// A run of 4 processes that has finished 3 of an epoch's 6 steps of 16 samples.
    fn saved() -> SavedState {
        let mut position = Position::new(Batching::new(4, 4, 1));
        (position.micro, position.step, position.step_in_epoch) = (3, 3, 3);
        let data = Fingerprint { train: 96, val: None, content: String::new() };
        let trained = Default::default();
        SavedState {
            position,
            batch_size: 4,
            accumulate: 1,
            data,
            device: "cpu".into(),
            comm_hook: None,
            trained,
        }
    }

    #[test]
    fn an_edited_spec_applies_and_an_unchanged_one_prints_nothing() {
        let (position, message) = resumed(&["train.accumulate=3"], 4);
        assert_eq!((position.start, position.batching), (48, Batching::new(4, 4, 3)));
        assert!(message.unwrap().contains("from 16 to 48"));
        assert_eq!(resumed(&[], 4), (saved().position, None));
    }
}
