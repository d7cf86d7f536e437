//! The text, JSON, TOML and hash of a plan.

use super::{JOB, resolve, resolve_for};
use crate::plan::{Plan, Running, WorldRequest};
use std::collections::BTreeSet;
use std::path::Path;
use train::training::Position;

#[test]
fn to_toml_resolves_to_the_same_plan() {
    let sets = [
        "seed=3",
        "save_every=500 steps",
        "scheduler=[{name=\"warmup\", steps=4}, {name=\"cosine\"}]",
        "checkpoint.map_location={\"cuda:0\"=\"cpu\"}",
        "train.clip_norm=0.1",
        "train.label_smoothing=0.1",
        "launch.nproc_per_node=3",
        "distributed.transport=tcp",
        "distributed.interface=eth0",
        "distributed.sockets=2",
        "dataset.val=100",
        "optimizer.eps=1e-12",
        "optimizer.lr=0.1",
        "optimizer.group=[{match=\"w\", lr=1, betas=[0.5, 0.9]}, {match=[\"b*\", \"b\"], frozen=true}]",
    ];
    let first = resolve(&sets);
    let text = first.to_toml();
    let second = resolve_for(&text, &[], WorldRequest::default()).unwrap_or_else(|d| panic!("{d}\n{text}"));
    let plain =
        |plan: &Plan| -> Vec<_> { plan.values.iter().map(|v| (v.key.clone(), v.value.clone())).collect() };
    assert_eq!(plain(&first), plain(&second));
    assert_eq!(first.hash, second.hash);
    assert_eq!(first.optimizer, second.optimizer);
    assert_eq!(first.schedule, second.schedule);
    assert_eq!(second.to_toml(), text);
    assert_eq!((first.world, first.batch, first.sizes), (second.world, second.batch, second.sizes));
}

#[test]
fn frozen_parameters_need_no_gradient_no_traffic_and_no_state() {
    let plan = resolve(&["launch.nproc_per_node=2", "optimizer.group=[{match=\"w\", frozen=true}]"]);
    let sizes = plan.sizes.unwrap();
    assert_eq!((sizes.parameters, sizes.trainable, sizes.buffers), (50, 10, 3));
    assert_eq!((sizes.gradient_bytes, sizes.all_reduce_bytes_per_step), (40, 40));
    assert_eq!((sizes.optimizer_bytes, sizes.checkpoint_bytes), (80, 4 * 53 + 80));
    assert!(plan.text().contains("  trainable        10 (40 B); 40 are frozen\n"), "{}", plan.text());
    assert!(plan.text().contains("\n[optimizer.group.0]\n  match "), "{}", plan.text());
    assert!(!resolve(&[]).text().contains("trainable"));
}

#[test]
fn a_brief_has_at_most_15_lines_and_what_only_a_running_rank_knows() {
    let sets = ["launch.nproc_per_node=2", "optimizer.lr=0.1", "epochs=3", "dataset.known=false"];
    let plan = resolve(&sets);
    let facts = resolve(&[]).dataset.facts;
    let tensors = resolve(&[]).model.source.tensors().unwrap();
    let mut position = Position::new(plan.batching(2));
    let brief = |position: &Position, set: &[String]| {
        plan.brief(&Running {
            facts: &facts,
            tensors: &tensors,
            position,
            device: "cpu".to_owned(),
            backend: "gloo",
            threads: 1,
            out_dir: Path::new("runs/x"),
            set,
        })
    };
    let text = brief(&position, &plan.set_values());
    insta::assert_snapshot!(text);
    let steps = |text: &str| text.lines().find(|line| line.contains("steps ")).map(str::to_owned);
    position.step = 7;
    assert!(steps(&brief(&position, &[])).is_some_and(|line| line.contains(", 7 of them done;")));
    let many: Vec<String> = (0..200).map(|i| format!("table.key_{i} = [1, 2, 3]")).collect();
    let text = brief(&position, &many);
    assert!(text.lines().count() <= 15 && text.contains("`ddp-run plan` shows all"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 130), "{text}");
}

#[test]
fn hash_covers_exactly_the_keys_that_change_results() {
    let base = resolve(&[]).hash;
    assert_eq!(base.len(), 64);
    let same = [
        "name=other",
        "save_every=never",
        "launch.nproc_per_node=2",
        "metrics.log_every=1",
        "checkpoint.keep_last=1",
        "distributed.timeout=5",
        "distributed.interface=eth0",
        "distributed.sockets=2",
        "dataset.root=elsewhere",
        "dataset.workers=4",
        "train.on_resize=keep-local-batch",
        "seed=0",
        "optimizer.lr=0.001",
        "optimizer.weight_decay=1e-2",
    ];
    for set in same {
        assert_eq!(resolve(&[set]).hash, base, "{set}");
    }
    let different = [
        "seed=1",
        "batch_size=16",
        "epochs=2",
        "optimizer.lr=0.002",
        "optimizer.group=[{match=\"w\", lr=0.1}]",
        "optimizer.group=[{match=\"w\", lr=0.2}]",
        "optimizer.group=[{match=\"b\", frozen=true}]",
        "train.accumulate=2",
        "dataset.shuffle=false",
        "model.dropout=0.1",
        "scheduler.name=cosine",
        "distributed.bucket_cap_mb=1",
        "distributed.transport=tcp",
        "distributed.algorithm=ring",
        "distributed.comm_hook=mine",
    ];
    let mut seen = BTreeSet::from([base]);
    for set in different {
        assert!(seen.insert(resolve(&[set]).hash), "{set}");
    }
}

#[test]
fn text_shows_values_and_derived_values() {
    let text = resolve_for(JOB, &["seed=9", "dataset.val=100"], WorldRequest::new(3)).unwrap().text();
    let has = |line: &str| {
        assert!(text.lines().any(|l| l.split_whitespace().eq(line.split_whitespace())), "{line}\n{text}")
    };
    has("seed 9 --set");
    has("name \"adamw\" spec");
    has("eps 1e-8 default");
    has("[optimizer]");
    has("global batch 24 (8 x 3 processes)");
    has("steps per epoch 42");
    has("padding 2 samples per epoch repeated");
    has("dropped none");
    has("last step 18 samples per epoch; micro-batches are weighted by their samples");
    has("parameters 50 (200 B)");
    has("validation 100");
    has("test none");
}

#[test]
fn json_has_the_same_values() {
    let json = resolve(&["dataset.val=100"]).json();
    assert_eq!(json["batch"]["steps_per_epoch"], 125);
    assert_eq!(json["world"]["world_size"], 1);
    assert_eq!(json["values"][0], serde_json::json!({ "key": "name", "value": "job", "origin": "spec" }));
    assert_eq!(json["loss"]["name"], "cross-entropy");
}
