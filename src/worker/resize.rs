//! Resumes a run with another number of processes, or with another batch size in the spec.

use super::state::Saved;
use crate::plan::Plan;
use crate::train::{Batching, Position};

impl Saved {
    /// The position in this run's batching, after the finished samples, and a description of the change. `samples` is
    /// the size of an epoch. A `batch_size` or `accumulate` that was edited in the spec is used as it is.
    pub fn resume_with(self, plan: &Plan, world: usize, samples: usize) -> (Position, Option<String>) {
        let mut position = self.position;
        let before = position.batching;
        let (batch_size, accumulate) = (plan.batch_size, plan.train.accumulate);
        let now = match (self.batch_size, self.accumulate) == (batch_size, accumulate) {
            true => before.on(world, accumulate, plan.train.on_resize),
            false => Batching::of(world, batch_size, accumulate),
        };
        position.regroup(now, samples, plan.loader.drop_last);
        (position, now.change_from(&before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Fingerprint;
    use crate::worker::testing::{self, SPEC};

    fn plan(sets: &[&str]) -> Plan {
        testing::plan(SPEC, &[&["batch_size=4"], sets].concat(), 1)
    }

    /// A run of 4 processes that has finished 3 of an epoch's 6 steps of 16 samples.
    fn saved() -> Saved {
        let mut position = Position::new(Batching::of(4, 4, 1));
        (position.micro, position.step, position.step_in_epoch) = (3, 3, 3);
        let data = Fingerprint { train: 96, val: None, content: String::new() };
        let trained = Default::default();
        Saved { position, batch_size: 4, accumulate: 1, data, device: "cpu".into(), comm_hook: None, trained }
    }

    #[test]
    fn the_global_batch_is_kept_unless_the_spec_says_otherwise() {
        let (position, told) = saved().resume_with(&plan(&[]), 2, 96);
        assert_eq!((position.start, position.micro, position.step), (48, 0, 3));
        assert_eq!((position.batching.accumulate, position.batching.global_batch()), (2, 16));
        assert_eq!(position.rest_algebra(96, false).steps_per_epoch(), 3);
        assert!(told.unwrap().contains("the global batch stays 16"));
        let (position, told) = saved().resume_with(&plan(&["train.on_resize=keep-local-batch"]), 2, 96);
        assert_eq!((position.start, position.batching.accumulate), (48, 1));
        assert_eq!(position.rest_algebra(96, false).steps_per_epoch(), 6);
        assert!(told.unwrap().contains("the global batch changes from 16 to 8"));
    }

    #[test]
    fn an_edited_spec_applies_and_an_unchanged_one_prints_nothing() {
        let (position, told) = saved().resume_with(&plan(&["train.accumulate=3"]), 4, 96);
        assert_eq!((position.start, position.batching), (48, Batching::of(4, 4, 3)));
        assert!(told.unwrap().contains("from 16 to 48"));
        assert_eq!(saved().resume_with(&plan(&[]), 4, 96), (saved().position, None));
    }
}
