//! `[task]` with the name of a standard task.

use super::{JOB, resolve, resolve_for};
use crate::plan::WorldRequest;
use base::error::ErrorKind;
use data::{FieldFacts, FieldKind};
use spec::values;
use train::tasks::StandardLoss;

fn problems(sets: &[&str]) -> String {
    resolve_for(JOB, sets, WorldRequest::default()).unwrap_err().to_string()
}

#[test]
fn the_name_of_the_standard_task_changes_neither_loss_nor_hash() {
    let numbers = ["dataset.classes=0"];
    for (task, sets) in [("classification", &[][..]), ("regression", &numbers)] {
        let without = resolve(sets);
        let plan = resolve(&[sets, &[&format!("task.name={task}")]].concat());
        assert_eq!(plan.task.standard(), without.task.standard());
        assert_eq!(plan.hash, without.hash);
        assert!(plan.text().contains("[task]\n  name ") && plan.text().contains(task));
        // Nor does a run become another one, with or without it. With a user-defined task it does.
        for (now, before) in [(&plan, &without), (&without, &plan)] {
            assert_eq!(now.not_the_run_of(&before.to_toml()), []);
            let other = format!("{}\n[task]\nname = \"mine\"\n", without.to_toml());
            let changed = now.not_the_run_of(&other);
            assert!(changed.len() == 1 && changed[0].0 == "task.name", "{changed:?}");
        }
        // Workers and checkpoints get the resolved spec.
        let again = resolve_for(&plan.to_toml(), &[], WorldRequest::default()).unwrap();
        assert_eq!(values(&again.to_toml()), values(&plan.to_toml()));
    }
    // `train.loss` still works.
    let smooth = resolve(&["task.name=classification", "train.label_smoothing=0.1"]);
    assert_eq!(smooth.task.standard(), Some(StandardLoss::CrossEntropy { label_smoothing: 0.1 }));
}

#[test]
fn a_task_that_does_not_fit_is_reported_at_its_name() {
    for (sets, expected) in [
        (&["task.name=classification", "dataset.classes=0"][..], "requires classes as targets"),
        (&["task.name=regression"], "`name = \"classification\"` fits"),
        (&["task.name=language-modelling"], "requires sequences of tokens"),
        (&["task.name=clasification"], "did you mean \"classification\"?"),
        (&["task.name=mine"], "expected \"classification\", \"regression\" or \"language-modelling\""),
        (&["task.name=regression", "dataset.classes=0", "task.beta=1"], "unknown key; only `name`"),
        // The targets are not known yet.
        (
            &["task.name=regression", "dataset.known=false", "train.loss=cross-entropy"],
            "those of the task `regression` are numbers; set `loss = \"mse\"`",
        ),
    ] {
        let problems = problems(sets);
        assert!(problems.contains(expected), "{problems}");
        assert!(problems.contains("1 problem "), "{problems}");
    }
    let spec = format!("{JOB}[task]\nname = \"regression\"\n");
    let problems = resolve_for(&spec, &[], WorldRequest::default()).unwrap_err().to_string();
    assert!(problems.contains("name = \"regression\"\n") && problems.contains("^^^^^^^^^^^^"), "{problems}");
}

#[test]
fn a_task_is_compared_with_the_data_when_they_are_read() {
    let plan = resolve(&["dataset.known=false", "task.name=regression"]);
    assert_eq!(plan.task.standard(), Some(StandardLoss::Mse), "the task implies the kind of the targets");
    let input = FieldFacts { shape: vec![4], kind: FieldKind::Float };
    let target = |kind| FieldFacts { shape: vec![], kind };
    assert_eq!(plan.task.fits(&input, &target(FieldKind::Float)).map_err(|e| e.message), Ok(()));
    let e = plan.task.fits(&input, &target(FieldKind::Index(3))).unwrap_err();
    assert_eq!(e.kind, ErrorKind::Spec);
    assert!(e.message.starts_with("`task.name`: the task `regression` requires numbers"), "{e}");
}
