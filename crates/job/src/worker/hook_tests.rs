//! Runs with a communication hook of a user's crate that has keys and state.

use super::hook::HookLayout;
use super::spec_changes::OwnSpec;
use super::testing::{self, SPEC, TestRun};
use crate::plan::Plan;
use crate::registry::Registry;
use collectives::{CommError, ProcessGroup, ReduceOp};
use ddp::{CommHook, HookState};
use schemars::JsonSchema;
use serde::Deserialize;

/// Carries a part of each gradient over to the next step.
#[derive(Clone, Deserialize, JsonSchema)]
struct Carry {
    /// The part.
    part: f32,
    /// Changes nothing.
    #[serde(default)]
    #[schemars(extend("x-changes-results" = false))]
    #[allow(dead_code, reason = "nothing reads it")]
    verbose: bool,
    #[serde(default)]
    #[allow(dead_code, reason = "a key that a newer program has")]
    newer: bool,
    /// By bucket, with `part` in front.
    #[serde(skip)]
    carried: Vec<Vec<f32>>,
}

impl CommHook for Carry {
    fn average(
        &mut self,
        bucket: usize,
        gradients: &mut [f32],
        group: &dyn ProcessGroup,
    ) -> Result<(), CommError> {
        self.carried.resize(self.carried.len().max(bucket + 1), Vec::new());
        let carried = &mut self.carried[bucket];
        carried.resize(gradients.len() + 1, 0.0);
        carried[0] = self.part;
        for (gradient, carried) in gradients.iter_mut().zip(&mut carried[1..]) {
            *gradient += *carried;
            *carried = self.part * *gradient;
        }
        group.all_reduce(gradients.into(), ReduceOp::Mean)
    }

    fn state(&self, bucket: usize) -> &[f32] {
        self.carried.get(bucket).map_or(&[], Vec::as_slice)
    }

    fn restore(&mut self, bucket: usize, state: Vec<f32>) {
        assert_eq!(state[0], self.part, "the state of a hook with other keys");
        self.carried.resize(self.carried.len().max(bucket + 1), Vec::new());
        self.carried[bucket] = state;
    }
}

fn registry() -> Registry {
    Registry::standard().comm_hook_with("carry", Carry::clone).comm_hook_with("other", Carry::clone)
}

fn spec() -> String {
    format!("{SPEC}[distributed]\ncomm_hook = \"carry\"\n[distributed.hook]\npart = 0.5\n")
}

fn plan(sets: &[&str]) -> Plan {
    testing::resolved(&registry(), &spec(), sets, 2).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn the_state_of_a_hook_with_other_keys_is_left_out() {
    let (whole, parts, fresh) = (
        TestRun::with(registry(), &spec()),
        TestRun::with(registry(), &spec()),
        TestRun::with(registry(), &spec()),
    );
    whole.train(2, &[]).unwrap();
    parts.until(2, &[], 9).unwrap();
    let changed = parts.copied();
    parts.train(2, &[]).unwrap();
    assert!(whole.bits() == parts.bits(), "the keys are the same: the state is restored");
    // `restore` would panic.
    changed.train(2, &["distributed.hook.part=0.25"]).unwrap();
    fresh.train(2, &["distributed.hook.part=0.25"]).unwrap();
    assert!(changed.bits() != parts.bits() && changed.bits() != fresh.bits());
}

#[test]
fn changed_keys_are_told_by_their_names() {
    let state = HookState { name: "carry".to_owned(), buckets: vec![4], values: vec![vec![vec![1.0]]; 2] };
    let layout = HookLayout::new(&state, &OwnSpec::new(&plan(&[])).hook_keys());
    let why = |sets: &[&str]| layout.has_other_keys(OwnSpec::new(&plan(sets)));
    assert_eq!(
        why(&["distributed.hook.part=0.25"]).as_deref(),
        Some(
            "the checkpoint's state of the communication hook `carry` is ignored: distributed.hook.part = 0.5, now 0.25"
        )
    );
    assert_eq!(why(&[]), None);
    assert_eq!(why(&["distributed.hook.verbose=true"]), None, "it changes no results");
    // That is reported when the state is restored.
    assert_eq!(why(&["distributed.comm_hook=other", "distributed.hook.part=0.25"]), None);
    // Checkpoints of other programs: one that did not know the keys, and one that knew fewer.
    let mut json = serde_json::to_value(&layout).unwrap();
    json["keys"].as_object_mut().unwrap().remove("distributed.hook.newer").unwrap();
    let older: HookLayout = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(older.has_other_keys(OwnSpec::new(&plan(&[]))), None);
    assert!(older.has_other_keys(OwnSpec::new(&plan(&["distributed.hook.newer=true"]))).is_some());
    json.as_object_mut().unwrap().remove("keys").unwrap();
    let oldest: HookLayout = serde_json::from_value(json).unwrap();
    assert_eq!(oldest.has_other_keys(OwnSpec::new(&plan(&["distributed.hook.part=0.25"]))), None);
}
