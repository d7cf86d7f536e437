//! Runs with a task, a loss and metrics of a user's crate.

use super::testing::{self, Run, SPEC, close, fixed, trained};
use super::*;
use crate::data::{FieldMut, Sample, Transform};
use crate::models::{AnyNet, Net, Target};
use crate::plan::WorldRequest;
use crate::registry::Registry;
use crate::spec::JobTree;
use crate::tasks::{Batch, Loss, Metric, MetricFacts, StepContext, StepOutput, Task, Term};
use crate::telemetry::Event;
use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::{Int, Tensor, activation::log_softmax};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeSet;

/// `-log softmax` by operations of Burn: cross-entropy.
#[derive(Deserialize, JsonSchema)]
struct OwnLoss {
    /// Factor of the loss.
    #[schemars(range(min = 0.0))]
    factor: f64,
}

impl Loss for OwnLoss {
    fn of(&self, outputs: Tensor<2>, target: Target) -> Tensor<1> {
        let labels = target.flat_index();
        let rows = labels.dims()[0];
        log_softmax(outputs, 1).gather(1, labels.reshape([rows, 1])).mean().neg() * self.factor
    }
}

/// The number of rows whose largest output is the label's.
#[derive(Deserialize, JsonSchema)]
struct Hits {}

impl Metric for Hits {
    fn measure(&self, outputs: Tensor<2>, target: Target) -> [Term; 2] {
        let rows = outputs.dims()[0];
        let found = outputs.argmax(1).reshape([rows]).equal(target.flat_index());
        [found.int().sum().float().into(), rows.into()]
    }
}

/// Two towers whose outputs for the two halves of a sample shall be close.
#[derive(Module, Debug)]
struct Towers {
    left: Linear,
    right: Linear,
}

impl Net for Towers {}

/// InfoNCE over the samples of all ranks.
#[derive(Deserialize, JsonSchema)]
struct Contrastive {
    #[schemars(range(min = 0.01))]
    temperature: f64,
}

impl Task for Contrastive {
    type Model = Towers;
    type Batch = Batch;

    fn metrics(&self) -> Vec<MetricFacts> {
        vec![MetricFacts::larger_is_better("pairs"), MetricFacts::smaller_is_better("distance")]
    }

    fn step(&self, model: &Towers, batch: Batch, context: &StepContext<'_>) -> Result<StepOutput> {
        let own = model.left.forward(batch.input.rows());
        let other = model.right.forward(batch.target.rows());
        let count = own.dims()[0];
        let distance = (own.clone() - other.clone()).abs().sum();
        let (own, other) = (context.all_gather(own)?, context.all_gather(other)?);
        let all = own.dims()[0];
        let similar = own.matmul(other.transpose()) / self.temperature;
        let diagonal = Tensor::<1, Int>::arange(0..all as i64, &similar.device()).reshape([all, 1]);
        let loss = log_softmax(similar, 1).gather(1, diagonal).mean().neg();
        Ok(StepOutput::new(loss, count)
            .add_gradients()
            .metric("pairs", count, 1.0)
            .metric("distance", distance, count))
    }
}

/// As the standard one, for every model, with a metric of a standard name.
#[derive(Deserialize, JsonSchema)]
struct Plain {
    /// The loss is not one number.
    #[serde(default)]
    forgets_the_mean: bool,
    /// The name of a metric that is never zero.
    #[serde(default = "accuracy")]
    metric: String,
}

fn accuracy() -> String {
    "accuracy".to_owned()
}

impl Task for Plain {
    type Model = AnyNet;
    type Batch = Batch;

    fn metrics(&self) -> Vec<MetricFacts> {
        vec![MetricFacts::larger_is_better(&self.metric)]
    }

    fn step(&self, model: &AnyNet, batch: Batch, _: &StepContext<'_>) -> Result<StepOutput> {
        let error = model.forward(batch.input) - batch.target.rows();
        let count = error.dims()[0];
        let squares = error.clone() * error;
        let loss = if self.forgets_the_mean { squares.reshape([count]) } else { squares.mean() };
        Ok(StepOutput::new(loss, count).metric(&self.metric, count, 2.0))
    }
}

/// Adds noise to training inputs, and scales targets.
#[derive(Deserialize, JsonSchema)]
struct Noise {
    #[schemars(range(min = 0.0))]
    width: f32,
}

impl Transform for Noise {
    fn apply(&self, mut sample: Sample<'_>) -> Result<()> {
        assert_eq!(sample.shape, [4]);
        if let (true, FieldMut::Float(input)) = (sample.training, sample.input) {
            input.iter_mut().for_each(|x| *x += self.width * sample.random.normal());
        }
        Ok(())
    }
}

fn registry() -> Registry {
    Registry::standard()
        .transform::<Noise>("noise")
        .loss::<OwnLoss>("own")
        .metric::<Hits>("hits")
        .task::<Contrastive>("contrastive")
        .task::<Plain>("plain")
        .model("towers", |_: &Empty, _, device| Towers {
            left: fixed(3, 4, device),
            right: fixed(1, 4, device),
        })
}

#[derive(Deserialize, JsonSchema)]
struct Empty {}

const CLASSES: &str = "name = \"run\"\nseed = 3\nepochs = 3\nbatch_size = 8\n[model]\nname = \"linear\"\n\
    [dataset]\nname = \"shapes\"\ntrain = 100\nval = 30\nworkers = 0\n\
    [optimizer]\nname = \"sgd\"\nlr = 0.05\n[metrics]\nlog_every = 1\n";

const NUMBERS: &str = "name = \"run\"\nseed = 3\nepochs = 3\nbatch_size = 16\n[model]\nname = \"towers\"\n\
    [dataset]\nname = \"random\"\nsamples = 100\nfeatures = 3\nval_split = 0.2\nworkers = 0\n\
    [optimizer]\nname = \"sgd\"\nlr = 0.05\n[metrics]\nlog_every = 1\n\
    [task]\nname = \"contrastive\"\ntemperature = 0.5\n";

fn resolved(spec: &str, sets: &[&str], world: usize) -> Result<Plan, String> {
    testing::resolved(&registry(), spec, sets, world)
}

fn train_to(run: &Run, spec: &str, sets: &[&str], world: usize, stop_at: u64) -> Ended {
    trained(&resolved(spec, sets, world).unwrap(), run.out(), stop_at).unwrap()
}

fn measured(run: &Run, name: &str) -> Vec<[f64; 2]> {
    run.measured(name)
}

#[test]
fn an_own_loss_and_metric_measure_what_the_standard_ones_do() {
    let own = format!("{CLASSES}[loss]\nname = \"own\"\nfactor = 1\n[[metric]]\nname = \"hits\"\n");
    for world in [1, 2] {
        let (standard, run) = (Run::of(CLASSES), Run::of(&own));
        train_to(&standard, CLASSES, &[], world, u64::MAX);
        train_to(&run, &own, &[], world, u64::MAX);
        assert!(close(&measured(&standard, "loss"), &measured(&run, "loss")));
        // The sums are exact.
        assert_eq!(measured(&run, "hits"), measured(&run, "accuracy"));
        assert!(measured(&run, "hits").iter().flatten().all(|rate| (0.0..=1.0).contains(rate)));
    }
}

#[test]
fn a_loss_of_all_ranks_samples_trains_as_in_one_process() {
    let (one, two) = (Run::of(NUMBERS), Run::of(NUMBERS));
    train_to(&one, NUMBERS, &[], 1, u64::MAX);
    train_to(&two, NUMBERS, &["batch_size=8"], 2, u64::MAX);
    // An evaluation has no samples of other ranks, so only training is the same.
    let training =
        |run: &Run, name| measured(run, name).iter().map(|both| [both[0], 1.0]).collect::<Vec<_>>();
    for name in ["loss", "distance"] {
        let (one, two) = (training(&one, name), training(&two, name));
        assert!(close(&one, &two), "{name}: {one:?} and {two:?}");
    }
    assert!(measured(&one, "loss")[2][0] < measured(&one, "loss")[0][0], "it learns");
    let weights = |run: &Run| load_any(run.out()).unwrap().model.get("left.weight").unwrap().to_f32_vec();
    for (a, b) in weights(&one).iter().zip(weights(&two)) {
        assert!((a - b).abs() < 1e-5, "{a} and {b}");
    }
}

#[test]
fn an_own_task_resumes_with_the_same_sums_and_bits() {
    let (whole, parts) = (Run::of(NUMBERS), Run::of(NUMBERS));
    let sets = ["train.accumulate=2", "batch_size=4"];
    train_to(&whole, NUMBERS, &sets, 2, u64::MAX);
    for stop_at in [3, 4] {
        assert_eq!(train_to(&parts, NUMBERS, &sets, 2, stop_at), Ended::Stopped);
    }
    train_to(&parts, NUMBERS, &sets, 2, u64::MAX);
    for name in ["loss", "pairs", "distance"] {
        assert_eq!(measured(&whole, name), measured(&parts, name), "{name}");
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
        let run = Run::of(NUMBERS);
        let sets = [
            "save_every=1",
            "checkpoint.keep_last=1",
            "optimizer.lr=0.3",
            &format!("checkpoint.best={metric}"),
        ];
        train_to(&run, NUMBERS, &sets, 1, u64::MAX);
        (run.kept(), measured(&run, "distance").iter().map(|both| both[1]).collect::<Vec<f64>>())
    };
    // The task says which values are better: smaller distances, more pairs (as many in each epoch: the first is kept).
    let (kept, distances) = best("val.distance");
    let smallest = (0..3).min_by(|a, b| distances[*a].total_cmp(&distances[*b])).unwrap() as u64;
    assert_eq!(
        kept,
        BTreeSet::from([5 * (smallest + 1), 15]).into_iter().collect::<Vec<_>>(),
        "{distances:?}"
    );
    assert_eq!(best("val.pairs").0, [5, 15]);
    let run = Run::of(NUMBERS);
    let sets = ["epochs=9", "early_stop.metric=val.pairs", "early_stop.patience=2"];
    train_to(&run, NUMBERS, &sets, 2, u64::MAX);
    assert_eq!(run.epochs().len(), 3);
    // As many pairs in each epoch: never an improvement.
    let plateau = [
        "scheduler={ name = \"reduce-on-plateau\", metric = \"val.pairs\", patience = 0 }",
        "optimizer.lr=1",
    ];
    let run = Run::of(NUMBERS);
    train_to(&run, NUMBERS, &plateau, 1, u64::MAX);
    let rates: Vec<f64> = run.steps().iter().map(|(_, lr, _)| *lr).collect();
    assert_eq!([rates[0], rates[5], rates[10]], [1.0, 1.0, 0.1]);
}

/// Each transform has draws of its own, which a resume, another number of ranks and another number of loaders repeat.
#[test]
fn own_transforms_change_training_samples_alike_everywhere() {
    let noise = |width: f64| format!("{SPEC}[[transform]]\nname = \"noise\"\nwidth = {width}\n");
    let losses = |spec: &str, sets: &[&str], world| {
        let run = Run::of(spec);
        train_to(&run, spec, sets, world, 5);
        train_to(&run, spec, sets, world, u64::MAX);
        measured(&run, "loss")
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
    let (run, with_mse) = (Run::of(&spec), Run::of(&standard));
    train_to(&run, &spec, &[], 2, u64::MAX);
    train_to(&with_mse, &standard, &[], 2, u64::MAX);
    assert_eq!(measured(&run, "loss"), measured(&with_mse, "loss"));
    assert!(run.bits() == with_mse.bits());
    // The task's own metric of this name ranks: the first of equal values is best.
    let run = Run::of(&spec);
    train_to(
        &run,
        &spec,
        &["save_every=1", "checkpoint.keep_last=1", "checkpoint.best=val.accuracy"],
        1,
        u64::MAX,
    );
    assert_eq!(run.kept(), [5, 15]);
}

#[test]
fn what_does_not_fit_ends_before_the_run() {
    let refused = |spec: &str| {
        let run = Run::of(spec);
        let e = trained(&resolved(spec, &[], 1).unwrap(), run.out(), 1).unwrap_err();
        assert_eq!(e.code, crate::error::ExitCode::Spec);
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
        let problems = resolved(&format!("{CLASSES}{text}\n"), &[], 1).unwrap_err();
        assert!(problems.contains(expected), "{text}: {problems}");
    }
    let refused = |key: &str| resolved(NUMBERS, &[key], 1).unwrap_err();
    for key in ["checkpoint.best", "early_stop.metric"] {
        let both =
            |name: &str| resolved(NUMBERS, &[&format!("{key}=\"{name}\""), "early_stop.patience=1"], 1);
        assert!(both("val.pair").unwrap_err().contains("did you mean \"val.pairs\"?"));
        // The task measures no standard metric.
        assert!(both("val.mae").unwrap_err().contains("expected \"val.loss\""));
        both("val.distance").unwrap();
    }
    assert!(refused("checkpoint.best=3").contains("expected the name of a metric"));
    let tree = JobTree::parse("run.toml", &format!("{CLASSES}{task}"), &[]).unwrap();
    let problems = Plan::resolve(&tree, &Registry::standard(), WorldRequest::of(1)).unwrap_err().to_string();
    assert!(problems.contains("this program has no task of its own"), "{problems}");
    // A resolved spec resolves to the same plan: workers get it.
    let noise = "[[transform]]\nname = \"noise\"\nwidth = 1.0\n";
    let own =
        format!("{CLASSES}[loss]\nname = \"own\"\nfactor = 1\n[[metric]]\nname = \"hits\"\n{noise}{noise}");
    for spec in [own.as_str(), NUMBERS] {
        let plan = resolved(spec, &[], 1).unwrap();
        let again = resolved(&plan.to_toml(), &[], 1).unwrap();
        let values =
            |plan: &Plan| plan.values.iter().map(|v| (v.key.clone(), v.value.clone())).collect::<Vec<_>>();
        assert_eq!((&again.hash, values(&again)), (&plan.hash, values(&plan)));
    }
    let plan = resolved(&format!("{CLASSES}[[metric]]\nname = \"hits\"\n"), &[], 1).unwrap();
    assert_ne!(plan.hash, resolved(CLASSES, &[], 1).unwrap().hash);
    assert!(
        plan.text().contains("hits") && plan.to_toml().contains("[[metric]]\nname = \"hits\""),
        "{}",
        plan.to_toml()
    );
}
