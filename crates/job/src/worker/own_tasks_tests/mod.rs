//! Runs with a task, a loss and metrics of a user's crate.

mod components;

use super::testing::{self, SPEC, TestRun, close, trained};
use super::{Predictor, RankParts, Usage};
use crate::plan::Plan;
use crate::registry::Registry;
use base::error::{ErrorKind, Result};
use components::registry;
use ddp::device::ComputeDevice;
use record::Event;
use std::collections::BTreeSet;

const CLASSES: &str = "name = \"run\"\nseed = 3\nepochs = 3\nbatch_size = 8\n[model]\nname = \"linear\"\n\
    [dataset]\nname = \"shapes\"\ntrain = 100\nval = 30\nworkers = 0\n\
    [optimizer]\nname = \"sgd\"\nlr = 0.05\n[metrics]\nlog_every = 1\n";

const NUMBERS: &str = "name = \"run\"\nseed = 3\nepochs = 3\nbatch_size = 16\n[model]\nname = \"towers\"\n\
    [dataset]\nname = \"random\"\nsamples = 100\nfeatures = 3\nval_split = 0.2\nworkers = 0\n\
    [optimizer]\nname = \"sgd\"\nlr = 0.05\n[metrics]\nlog_every = 1\n\
    [task]\nname = \"contrastive\"\ntemperature = 0.5\n";

fn resolved(spec: &str, sets: &[&str]) -> Result<Plan, String> {
    testing::resolved(&registry(), spec, sets, 1)
}

fn run_of(spec: &str) -> TestRun {
    TestRun::with(registry(), spec)
}

#[test]
fn an_own_loss_and_metric_measure_what_the_standard_ones_do() {
    let own = format!("{CLASSES}[loss]\nname = \"own\"\nfactor = 1\n[[metric]]\nname = \"hits\"\n");
    for world in [1, 2] {
        let (standard, run) = (run_of(CLASSES), run_of(&own));
        standard.train(world, &[]).unwrap();
        run.train(world, &[]).unwrap();
        assert!(close(&standard.measured("loss"), &run.measured("loss")));
        // The sums are exact.
        assert_eq!(run.measured("hits"), run.measured("accuracy"));
        assert!(run.measured("hits").iter().flatten().all(|rate| (0.0..=1.0).contains(rate)));
    }
}

#[test]
fn a_standard_task_takes_an_own_loss_and_metric_too() {
    let spec = format!("{CLASSES}[loss]\nname = \"own\"\nfactor = 1\n[[metric]]\nname = \"hits\"\n");
    let (run, named) = (run_of(&spec), run_of(&format!("{spec}[task]\nname = \"classification\"\n")));
    run.train(2, &[]).unwrap();
    named.train(2, &[]).unwrap();
    assert!(run.bits() == named.bits());
    for name in ["loss", "accuracy", "hits"] {
        assert_eq!(run.measured(name), named.measured(name), "{name}");
    }
}

#[test]
fn a_loss_of_all_ranks_samples_trains_as_in_one_process() {
    let (one, two) = (run_of(NUMBERS), run_of(NUMBERS));
    one.train(1, &[]).unwrap();
    two.train(2, &["batch_size=8"]).unwrap();
    // An evaluation has no samples of other ranks, so only training is the same.
    let training =
        |run: &TestRun, name| run.measured(name).iter().map(|both| [both[0], 1.0]).collect::<Vec<_>>();
    for name in ["loss", "distance"] {
        let (one, two) = (training(&one, name), training(&two, name));
        assert!(close(&one, &two), "{name}: {one:?} and {two:?}");
    }
    assert!(one.measured("loss")[2][0] < one.measured("loss")[0][0], "it learns");
    let weights = |run: &TestRun| run.loaded().model.get("left.weight").unwrap().to_f32_vec();
    for (a, b) in weights(&one).iter().zip(weights(&two)) {
        assert!((a - b).abs() < 1e-5, "{a} and {b}");
    }
}

#[test]
fn a_model_of_an_own_task_cannot_predict() {
    let run = run_of(NUMBERS);
    run.train(1, &[]).unwrap();
    let loaded = run.loaded();
    let (usage, plan) = Usage::read(loaded.usage.as_deref().unwrap(), &loaded, &registry()).unwrap();
    let error =
        Predictor::new(&RankParts::new(&plan), &usage, &loaded, true, ComputeDevice::Cpu).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Spec);
    assert!(error.message.contains("trained by the task `contrastive`"), "{error}");
}

#[test]
fn an_own_task_resumes_with_the_same_sums_and_bits() {
    let (whole, parts) = (run_of(NUMBERS), run_of(NUMBERS));
    let sets = ["train.accumulate=2", "batch_size=4"];
    whole.train(2, &sets).unwrap();
    parts.in_parts(2, &sets, &[3, 4]);
    for name in ["loss", "pairs", "distance"] {
        assert_eq!(whole.measured(name), parts.measured(name), "{name}");
    }
    assert!(whole.bits() == parts.bits());
    // Nothing is measured that the task does not declare.
    let Some(Event::Epoch(epoch)) = whole.events().into_iter().find(|e| matches!(e, Event::Epoch(_))) else {
        panic!()
    };
    assert_eq!(epoch.train.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["loss", "distance", "pairs"]);
}

#[test]
fn own_metrics_rank_checkpoints_and_end_runs() {
    let best = |metric: &str| {
        let run = run_of(NUMBERS);
        let sets = [
            "save_every=1",
            "checkpoint.keep_last=1",
            "optimizer.lr=0.3",
            &format!("checkpoint.best={metric}"),
        ];
        run.train(1, &sets).unwrap();
        (run.kept(), run.measured("distance").iter().map(|both| both[1]).collect::<Vec<f64>>())
    };
    // The task says which values are better: smaller distances, more pairs (as many in each epoch: the last has the lowest loss).
    let (kept, distances) = best("val.distance");
    let smallest = (0..3).min_by(|a, b| distances[*a].total_cmp(&distances[*b])).unwrap() as u64;
    assert_eq!(
        kept,
        BTreeSet::from([5 * (smallest + 1), 15]).into_iter().collect::<Vec<_>>(),
        "{distances:?}"
    );
    assert_eq!(best("val.pairs").0, [15]);
    let run = run_of(NUMBERS);
    let sets = ["epochs=9", "early_stop.metric=val.pairs", "early_stop.patience=2"];
    run.train(2, &sets).unwrap();
    assert_eq!(run.epochs().len(), 3);
    // As many pairs in each epoch: never an improvement.
    let plateau = [
        "scheduler={ name = \"reduce-on-plateau\", metric = \"val.pairs\", patience = 0 }",
        "optimizer.lr=1",
    ];
    let run = run_of(NUMBERS);
    run.train(1, &plateau).unwrap();
    let rates: Vec<f64> = run.steps().iter().map(|(_, lr, _)| *lr).collect();
    assert_eq!([rates[0], rates[5], rates[10]], [1.0, 1.0, 0.1]);
}

/// Each transform has draws of its own, which a resume, another number of ranks and another number of loaders repeat.
#[test]
fn own_transforms_change_training_samples_alike_everywhere() {
    let noise = |width: f64| format!("{SPEC}[[transform]]\nname = \"noise\"\nwidth = {width}\n");
    let losses = |spec: &str, sets: &[&str], world| {
        let run = run_of(spec);
        run.until(world, sets, 5).unwrap();
        run.train(world, sets).unwrap();
        run.measured("loss")
    };
    let (plain, none, much) =
        (losses(SPEC, &[], 1), losses(&noise(0.0), &[], 1), losses(&noise(1.0), &[], 1));
    assert_eq!(plain, none);
    assert!((plain[0][0] - much[0][0]).abs() > 0.1, "{plain:?} and {much:?}");
    assert_eq!(losses(&noise(1.0), &["dataset.workers=2"], 1), much);
    assert!(close(&losses(&noise(1.0), &["batch_size=4"], 2), &much));
    let twice = format!("{}[[transform]]\nname = \"noise\"\nwidth = 1\n", noise(1.0));
    let (once, twice) = (losses(&noise(2.0), &[], 1), losses(&twice, &[], 1));
    assert!(!close(&once, &twice), "the second transform has the draws of the first");
}

#[test]
fn a_task_for_any_model_is_its_own_loss() {
    let spec = NUMBERS
        .replace("towers", "linear")
        .replace("contrastive", "plain")
        .replace("temperature = 0.5\n", "");
    let standard = spec.replace("[task]\nname = \"plain\"\n", "");
    let (run, with_mse) = (run_of(&spec), run_of(&standard));
    run.train(2, &[]).unwrap();
    with_mse.train(2, &[]).unwrap();
    assert_eq!(run.measured("loss"), with_mse.measured("loss"));
    assert!(run.bits() == with_mse.bits());
    // The task's own metric of this name ranks: of equal values the one with the lowest loss is best.
    let run = run_of(&spec);
    run.train(1, &["save_every=1", "checkpoint.keep_last=1", "checkpoint.best=val.accuracy"]).unwrap();
    assert_eq!(run.kept(), [15]);
}

#[test]
fn what_does_not_fit_ends_before_the_run() {
    let refused = |spec: &str| {
        let run = run_of(spec);
        let e = trained(&resolved(spec, &[]).unwrap(), run.out(), 1).unwrap_err();
        assert_eq!(e.kind, ErrorKind::Spec);
        e.message
    };
    let message = refused(&NUMBERS.replace("towers", "linear"));
    assert!(
        message.contains("task `contrastive` trains models of type") && message.contains("Towers"),
        "{message}"
    );
    let message = refused(&NUMBERS.replace("[task]\nname = \"contrastive\"\ntemperature = 0.5\n", ""));
    assert!(message.contains("name the task that trains it in `[task]`"), "{message}");
    let plain = NUMBERS.replace("towers", "linear").replace("contrastive", "plain");
    let message = refused(&plain.replace("temperature = 0.5", "forgets_the_mean = true"));
    assert!(message.contains("the loss has shape [16]; expected [1]"), "{message}");
    let message = refused(&NUMBERS.replace("features = 3", "features = 5"));
    assert!(message.contains("the task does not accept 16 samples of shape [5] (floats)"), "{message}");
}

#[test]
fn problems_of_the_tables_are_reported_at_their_keys() {
    let task = "[task]\nname = \"plain\"\n";
    for (text, expected) in [
        (format!("{task}[loss]\nname = \"own\"\nfactor = 1"), "has no effect with `[task]`"),
        (format!("{task}[[metric]]\nname = \"hits\""), "has no effect with `[task]`"),
        (format!("{task}[train]\nloss = \"mse\""), "has no effect with `[task]`"),
        (
            "[loss]\nname = \"own\"\nfactor = 1\n[train]\nlabel_smoothing = 0.1".to_owned(),
            "has no effect with `[loss]`",
        ),
        ("[loss]\nname = \"own\"\nfactor = -1".to_owned(), "at least 0"),
        ("[loss]\nname = \"won\"".to_owned(), "did you mean \"own\"?"),
        ("[[metric]]\nname = \"hits\"\n[[metric]]\nname = \"hits\"".to_owned(), "listed twice"),
        ("[[metric]]\nname = \"hits\"\nk = 3".to_owned(), "unknown key; only `name`"),
        ("[task]\nname = \"contrastive\"".to_owned(), "missing key `temperature`"),
        (format!("{task}metric = \"loss\""), "the task has a metric `loss`"),
    ] {
        let problems = resolved(&format!("{CLASSES}{text}\n"), &[]).unwrap_err();
        assert!(problems.contains(expected), "{text}: {problems}");
    }
    let refused = |key: &str| resolved(NUMBERS, &[key]).unwrap_err();
    for key in ["checkpoint.best", "early_stop.metric"] {
        let both = |name: &str| resolved(NUMBERS, &[&format!("{key}=\"{name}\""), "early_stop.patience=1"]);
        assert!(both("val.pair").unwrap_err().contains("did you mean \"val.pairs\"?"));
        // The task measures no standard metric.
        assert!(both("val.mae").unwrap_err().contains("expected \"val.loss\""));
        both("val.distance").unwrap();
    }
    assert!(refused("checkpoint.best=3").contains("expected the name of a metric"));
    let spec = format!("{CLASSES}{task}");
    let problems = testing::resolved(&Registry::standard(), &spec, &[], 1).unwrap_err();
    assert!(problems.contains("expected \"classification\", \"regression\" or"), "{problems}");
    // A resolved spec resolves to the same plan: workers get it.
    let noise = "[[transform]]\nname = \"noise\"\nwidth = 1.0\n";
    let own =
        format!("{CLASSES}[loss]\nname = \"own\"\nfactor = 1\n[[metric]]\nname = \"hits\"\n{noise}{noise}");
    for spec in [own.as_str(), NUMBERS] {
        let plan = resolved(spec, &[]).unwrap();
        let again = resolved(&plan.to_toml(), &[]).unwrap();
        let values =
            |plan: &Plan| plan.values.iter().map(|v| (v.key.clone(), v.value.clone())).collect::<Vec<_>>();
        assert_eq!((&again.hash, values(&again)), (&plan.hash, values(&plan)));
    }
    let plan = resolved(&format!("{CLASSES}[[metric]]\nname = \"hits\"\n"), &[]).unwrap();
    assert_ne!(plan.hash, resolved(CLASSES, &[]).unwrap().hash);
    assert!(
        plan.text().contains("hits") && plan.to_toml().contains("[[metric]]\nname = \"hits\""),
        "{}",
        plan.to_toml()
    );
}
