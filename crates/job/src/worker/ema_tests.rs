//! `[ema]`: what is averaged, evaluated and saved, and what a resumed run makes of it.

use super::testing::{SPEC, TestRun, plan};
use super::{EvaluationScope, RankParts, Split, evaluate};
use checkpoint::{Loaded, TensorMap, load};
use collectives::SoloGroup;
use ddp::device::ComputeDevice;
use std::path::Path;

const EMA: [&str; 3] = ["ema.decay=0.9", "ema.every=3", "ema.warmup_power=0.75"];

fn at(run: &TestRun, step: u64) -> Loaded {
    let entries = run.store().list().unwrap();
    load(&entries.iter().find(|entry| entry.step == step).unwrap().path).unwrap()
}

fn values(map: &TensorMap) -> Vec<f32> {
    map.iter().flat_map(|tensor| tensor.to_f32_vec()).collect()
}

/// Model, average and validation losses.
fn results(run: &TestRun) -> (TensorMap, TensorMap, Vec<Option<f64>>) {
    let Loaded { model, ema, .. } = run.loaded();
    (model, ema, run.epochs().iter().map(|epoch| epoch.3).collect())
}

#[test]
fn the_average_follows_the_saved_weights_of_every_step() {
    let run = TestRun::new(SPEC);
    let sets = ["epochs=1", "save_every=1 steps", "checkpoint.keep_last=0", "ema.decay=0.75"];
    run.train(2, &sets).unwrap();
    let mut average: Vec<f32> = Vec::new();
    for step in run.kept() {
        let Loaded { model, ema, .. } = at(&run, step);
        let weights = values(&model);
        match step {
            1 => average = weights,
            _ => average.iter_mut().zip(weights).for_each(|(a, w)| *a += (w - *a) * 0.25),
        }
        assert_eq!(values(&ema), average, "step {step}");
    }
    assert!(run.kept().len() == 4 && run.loaded().model != run.loaded().ema);
}

#[test]
fn the_average_is_what_is_evaluated() {
    let run = TestRun::new(SPEC);
    let sets = [&EMA[..], &["epochs=2"]].concat();
    run.train(2, &sets).unwrap();
    let plan = plan(SPEC, &sets, 1);
    let loss = |averaged| {
        let (loaded, group) = (load(&run.newest()).unwrap(), SoloGroup::default());
        let wanted = EvaluationScope { split: Split::Val, averaged, per_class: false };
        let metrics = evaluate(&RankParts::new(&plan), Some(&loaded), wanted, ComputeDevice::Cpu, 0, &group);
        metrics.unwrap().json()["loss"].as_f64().unwrap()
    };
    let reported = run.epochs().last().unwrap().3.unwrap();
    let (averaged, own) = (loss(true), loss(false));
    assert!((averaged - reported).abs() < 1e-6 * reported, "{averaged} {reported}");
    assert!((own - reported).abs() > 1e-3 * reported, "{own} {reported}");
    assert_eq!(run.loaded().state.metric("val.loss"), Some(reported));
}

#[test]
fn a_run_that_is_interrupted_has_the_same_average() {
    for world in [1, 2] {
        let (whole, cut) = (TestRun::new(SPEC), TestRun::new(SPEC));
        whole.train(world, &EMA).unwrap();
        // Before an update is due, when one is, and in the last step of an epoch.
        cut.in_parts(world, &EMA, &[1, 2, 5, 3]);
        assert!(results(&cut) == results(&whole), "{world} ranks");
        // Training itself does not depend on the average.
        let plain = TestRun::new(SPEC);
        plain.train(world, &[]).unwrap();
        assert!(plain.bits() == whole.bits() && plain.loaded().ema.is_empty());
    }
}

#[test]
fn an_average_begins_and_ends_with_its_table() {
    let run = TestRun::new(SPEC);
    run.train(1, &["epochs=1"]).unwrap();
    let begun = run.loaded().model;
    run.train(1, &["epochs=2", "ema.decay=0.9", "ema.every=1000"]).unwrap();
    assert!(run.loaded().ema == begun, "the average starts from the loaded weights");
    assert_eq!(at(&run, run.loaded().state.global_step).state.extra["position"]["ema"], 1);
    run.train(1, &["epochs=3"]).unwrap();
    let last = run.loaded();
    assert!(last.ema.is_empty() && last.state.extra["position"].get("ema").is_none());
    assert!(!Path::new(&last.path).join("ema.safetensors").exists());
}
