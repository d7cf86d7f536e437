//! Predicts the plan of a resumed run before anything is loaded: the checkpoint says what its steps consist of.

use super::Resume;
use super::state::Saved;
use crate::checkpoint::{CheckpointStore, State, find_store, read_state};
use crate::history::checkpoints;
use crate::plan::Plan;
use std::path::Path;

/// The plan that the run will follow: with the batching of the checkpoint that `resume` selects, if there is one and
/// the size of the data set is known. Unreadable files are reported later by rank 0.
pub fn plan_after_resume(plan: &Plan, resume: &str, out_dir: &Path) -> Plan {
    let found = match Resume::parse(resume) {
        Resume::Never => None,
        Resume::Auto => newest(&CheckpointStore::read_only(checkpoints(out_dir))),
        Resume::From(path) => match find_store(&path) {
            Some(store) => newest(&store),
            None => read_state(&path).ok(),
        },
    };
    found.and_then(|state| continued(plan, state)).unwrap_or_else(|| plan.clone())
}

fn newest(store: &CheckpointStore) -> Option<State> {
    store.list().ok()?.iter().rev().find_map(|entry| read_state(&entry.path).ok())
}

fn continued(plan: &Plan, state: State) -> Option<Plan> {
    let (samples, drop_last) = (plan.dataset.facts.train?, plan.loader.drop_last);
    let saved: Saved = serde_json::from_value(state.extra).ok()?;
    let valid = Some(saved).filter(|saved| saved.is_valid(state.world))?;
    let (position, _) = valid.resume_with(plan, plan.world.world_size, samples);
    let left = position.steps_left(plan.epochs, samples, drop_last);
    let mut plan = plan.clone();
    plan.batch = position.batching.algebra(samples, drop_last);
    plan.train.accumulate = position.batching.accumulate;
    plan.resumed = Some((position.step, position.step.saturating_add(left)));
    Some(plan)
}
