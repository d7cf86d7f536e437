//! The state of a folder before a start, and which part of it does not lead to the start.

use super::checkpoints;
use crate::{Event, RunEnd, read_events};
use base::error::Result;
use checkpoint::CheckpointStore;
use std::path::Path;

/// The facts that a start needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FolderState {
    /// Steps of the existing checkpoints, according to their names.
    pub checkpoints: Vec<u64>,
    /// At least one step or epoch was trained.
    pub trained: bool,
    /// The last step that was saved or at which a run ended without failure.
    pub reached: Option<u64>,
    /// The step at which a run ended without failure, if that is the last event.
    pub completed_at: Option<u64>,
}

/// What a start does not continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToArchive {
    Nothing,
    /// Everything after this step.
    After(u64),
    All,
}

impl FolderState {
    /// # Errors
    /// `ErrorKind::Io`: checkpoints that can't be listed, metrics that can't be read.
    pub fn read(out_dir: &Path) -> Result<Self> {
        let checkpoints = CheckpointStore::read_only(checkpoints(out_dir)).list()?;
        let metrics = out_dir.join("metrics.jsonl");
        let events = if metrics.exists() { read_events(&metrics)? } else { Vec::new() };
        Ok(Self {
            checkpoints: checkpoints.iter().map(|entry| entry.step).collect(),
            ..Self::from_events(&events)
        })
    }

    /// For a folder with content that can't be read, and that no start can continue.
    pub fn unreadable() -> Self {
        Self { trained: true, reached: Some(u64::MAX), ..Self::default() }
    }

    fn from_events(events: &[Event]) -> Self {
        let mut state = Self::default();
        for event in events {
            state.completed_at = None;
            match event {
                Event::Step(_) | Event::Epoch(_) => state.trained = true,
                Event::Checkpoint(saved) => state.reached = state.reached.max(Some(saved.step)),
                Event::End(end) if end.outcome() == RunEnd::Done => {
                    state.completed_at = Some(end.step);
                    state.reached = state.reached.max(Some(end.step));
                }
                _ => {}
            }
        }
        state
    }

    pub fn is_completed_at(&self, step: u64) -> bool {
        self.completed_at == Some(step)
    }

    /// What does not lead to a start from the folder's own checkpoint at step `from`; for `None`, to a start from
    /// elsewhere or from the beginning. Unsaved steps do not count if they are repeated (`again`).
    pub fn to_archive(&self, from: Option<u64>, again: bool) -> ToArchive {
        match from {
            Some(step) => {
                let beyond = self.checkpoints.iter().copied().chain(self.reached).any(|s| s > step);
                if beyond { ToArchive::After(step) } else { ToArchive::Nothing }
            }
            None => {
                let saved = !self.checkpoints.is_empty() || self.reached.is_some();
                if saved || (self.trained && !again) { ToArchive::All } else { ToArchive::Nothing }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{self, checkpoint, end, resume};
    use proptest::prelude::*;

    fn step(step: u64) -> Event {
        samples::step(step, 1.0)
    }

    fn state(checkpoints: &[u64], events: &[Event]) -> FolderState {
        FolderState { checkpoints: checkpoints.to_vec(), ..FolderState::from_events(events) }
    }

    #[test]
    fn a_killed_run_continues_and_repeats_its_last_steps() {
        let killed = state(&[10], &[step(5), step(10), checkpoint(10), step(13)]);
        assert_eq!(killed.to_archive(Some(10), false), ToArchive::Nothing);
        // The checkpoint was complete, but its event was not written yet.
        assert_eq!(
            state(&[5, 10], &[step(10), checkpoint(5)]).to_archive(Some(10), false),
            ToArchive::Nothing
        );
    }

    #[test]
    fn resuming_an_older_checkpoint_archives_later_steps() {
        let done = state(&[10, 80, 100], &[checkpoint(10), checkpoint(80), checkpoint(100), end(100, 0)]);
        assert_eq!(done.to_archive(Some(10), false), ToArchive::After(10));
        assert_eq!(done.to_archive(Some(100), false), ToArchive::Nothing);
        // The newest checkpoints were removed or never written.
        assert_eq!(
            state(&[10], &[checkpoint(10), checkpoint(80)]).to_archive(Some(10), true),
            ToArchive::After(10)
        );
        assert_eq!(
            state(&[10], &[checkpoint(10), end(80, 0)]).to_archive(Some(10), false),
            ToArchive::After(10)
        );
        // A failed run saved nothing that could be lost.
        assert_eq!(
            state(&[10], &[checkpoint(10), end(12, 90)]).to_archive(Some(10), false),
            ToArchive::Nothing
        );
    }

    #[test]
    fn starting_over_archives_everything_but_unsaved_steps() {
        assert_eq!(state(&[], &[]).to_archive(None, false), ToArchive::Nothing);
        assert_eq!(state(&[], &[end(0, 78)]).to_archive(None, false), ToArchive::Nothing);
        assert_eq!(state(&[10], &[]).to_archive(None, false), ToArchive::All);
        assert_eq!(state(&[], &[step(3)]).to_archive(None, false), ToArchive::All);
        assert_eq!(state(&[], &[step(3)]).to_archive(None, true), ToArchive::Nothing);
        assert_eq!(state(&[], &[step(3), end(3, 0)]).to_archive(None, true), ToArchive::All);
        assert_eq!(FolderState::unreadable().to_archive(None, true), ToArchive::All);
    }

    #[test]
    fn a_run_is_complete_only_if_its_last_event_says_so() {
        assert!(state(&[8], &[step(8), checkpoint(8), end(8, 0)]).is_completed_at(8));
        assert!(!state(&[8], &[end(8, 0), resume(8, 1)]).is_completed_at(8));
        assert!(!state(&[8], &[end(8, 75)]).is_completed_at(8));
        assert!(!state(&[8], &[end(8, 0)]).is_completed_at(4));
    }

    proptest! {
        /// Nothing that was saved is overwritten, and a start from the newest checkpoint moves nothing.
        #[test]
        fn saved_steps_are_never_overwritten(steps in prop::collection::btree_set(1u64..50, 1..6), from in 0usize..6) {
            let steps: Vec<u64> = steps.into_iter().collect();
            let events: Vec<_> = steps.iter().flat_map(|s| [step(*s), checkpoint(*s)]).collect();
            let from = steps[from % steps.len()];
            let newest = *steps.last().expect("one at least");
            for known in [&steps[..], &[]] {
                let expected = if from < newest { ToArchive::After(from) } else { ToArchive::Nothing };
                prop_assert_eq!(state(known, &events).to_archive(Some(from), true), expected);
            }
            prop_assert_eq!(state(&steps, &events).to_archive(None, true), ToArchive::All);
        }
    }
}
