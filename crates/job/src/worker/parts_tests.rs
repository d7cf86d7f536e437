use super::*;
use crate::plan::WorldRequest;
use crate::plan::testing::resolved;
use crate::registry::Registry;
use base::error::ErrorKind;
use spec::JobTree;
use std::path::Path;

/// 40 rows of two features and three classes.
fn table(dir: &Path) -> String {
    let path = dir.join("rows.csv");
    let class = |row: usize| ["Adelie", "Chinstrap", "Gentoo"][row % 3];
    let rows: String = (0..40).map(|row| format!("{row},{}.5,{}\n", row * row, class(row))).collect();
    std::fs::write(&path, format!("x,y,species\n{rows}")).unwrap();
    format!(
        "name = 'a'\nbatch_size = 4\nepochs = 3\n[model]\nname = 'mlp'\nhidden = [8]\n[optimizer]\nname = 'adamw'\n\
         [scheduler]\nname = 'cosine'\nwarmup_epochs = 1\n[dataset]\nname = 'csv'\npath = {path:?}\ntarget = 'species'\n\
         task = 'classification'\nval_split = 0.25\n"
    )
}

#[test]
fn a_plan_with_data_has_its_values_and_what_only_the_data_tells() {
    let dir = tempfile::tempdir().unwrap();
    let (registry, spec) = (Registry::standard(), table(dir.path()));
    let plan = resolved(&registry, &spec, &[], 2).unwrap();
    assert_eq!((plan.sizes, plan.total_steps(), plan.memory()), (None, None, None));
    assert!(
        plan.text().contains("parameters  known when the data is read (`plan --data`)\n"),
        "{}",
        plan.text()
    );
    let known = with_data(&plan).unwrap();
    assert_eq!((&known.hash, known.to_toml()), (&plan.hash, plan.to_toml()));
    let has = |line: &str| {
        let text = known.text();
        assert!(text.lines().any(|l| l.split_whitespace().eq(line.split_whitespace())), "{line}\n{text}")
    };
    for line in [
        "training 30",
        "validation 10",
        "test none",
        "input [2] numbers",
        "target one of 3 classes",
        "classes 3: Adelie, Chinstrap, Gentoo",
        "samples per rank 15",
        "steps per epoch 4",
        "steps in all 12",
        "samples in all 90",
        "schedule warmup for 4 steps, then cosine for 8 steps",
        "parameters 51 (204 B)",
        // Weights, gradients and two moments; 4 samples of two numbers, a class, three outputs and eight hidden ones.
        "memory at least 1.0 KiB on each rank, and 612 B of host memory on rank 0 for saves",
    ] {
        has(line);
    }
    assert!(!known.text().contains("known when"), "{}", known.text());
    let json = known.json();
    assert_eq!(json["classes"], serde_json::json!(["Adelie", "Chinstrap", "Gentoo"]));
    assert_eq!((&json["total_samples"], &json["data"]["train"]), (&90.into(), &30.into()));
    assert_eq!(json["schedule_steps"], serde_json::json!([["warmup", 4], ["cosine", 8]]));
    assert_eq!(json["memory"]["rank_bytes"], 1056);
    // What `--format toml` writes with it is the same job.
    let toml = known.to_toml() + &known.toml_comments();
    assert!(toml.contains("\n#   steps in all: 12\n"), "{toml}");
    let tree = JobTree::parse("job.toml", &toml, &[]);
    let again = Plan::resolve(&tree, &registry, WorldRequest::new(2)).unwrap();
    assert_eq!((&again.hash, again.to_toml()), (&plan.hash, plan.to_toml()));
}

#[test]
fn a_plan_with_data_fails_as_the_run_would() {
    let dir = tempfile::tempdir().unwrap();
    let (registry, spec) = (Registry::standard(), table(dir.path()));
    let refused = |sets: &[&str]| with_data(&resolved(&registry, &spec, sets, 1).unwrap()).unwrap_err();
    for (sets, message) in [
        (&["model.num_classes=4"][..], "model.num_classes: the data set requires 3, found 4"),
        (&["optimizer.group=[{match='conv*', lr=0.1}]"], "conv*"),
        (&["dataset.drop_last=true", "batch_size=64"], "an epoch has no optimizer step"),
        (&["checkpoint.best=\"val.mae\""], "`val.mae` needs numbers as targets"),
    ] {
        let error = refused(sets);
        assert_eq!(error.kind, ErrorKind::Spec, "{error}");
        assert!(error.message.contains(message), "{error}");
    }
    std::fs::remove_file(dir.path().join("rows.csv")).unwrap();
    let plan = resolved(&registry, &spec, &[], 1).unwrap();
    let (run, error) = (plan.dataset.source.check_files().map_err(Error::of_data).unwrap_err(), refused(&[]));
    assert_eq!((error.kind, error.message), (run.kind, run.message));
}

#[test]
fn a_model_of_unknown_size_is_compared_with_the_memory_once_the_data_is_open() {
    use launch::memory::UsableMemory;
    let dir = tempfile::tempdir().unwrap();
    let (registry, spec) = (Registry::standard(), table(dir.path()));
    let warned = |bytes: u64| {
        let tree = JobTree::parse("job.toml", &format!("device = 'cpu'\n{spec}"), &[]);
        let memory = Some(UsableMemory { bytes, limited: false });
        let plan = Plan::resolve(&tree, &registry, WorldRequest { memory, ..WorldRequest::new(1) }).unwrap();
        assert_eq!(plan.memory_warning(), None, "the model's size is not known");
        let facts = facts_of(&plan.dataset.source.open().unwrap());
        RankParts::new(&plan).memory_warning(&facts)
    };
    // As above, with the copy for saves.
    assert_eq!(warned(1056 + 612), None);
    let text = warned(1056 + 611).unwrap();
    assert!(text.ends_with("on 1 rank; this machine has 1.6 KiB"), "{text}");
}
