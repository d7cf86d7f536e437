//! Runs of models that are written for Burn's `Learner`.

use super::testing::{self, TestRun, close, fixed};
use crate::registry::Registry;
use base::error::{ErrorKind, Result};
use burn::module::Module;
use burn::nn::{Linear, loss::CrossEntropyLossConfig};
use burn::optim::GradientsParams;
use burn::tensor::{Int, Tensor};
use burn_train::{ClassificationOutput, InferenceStep, TrainOutput, TrainStep};
use schemars::JsonSchema;
use serde::Deserialize;
use train::models::Net;
use train::tasks::{Batch, MetricFacts, StepContext, StepOutput, Task};
use train::training::TrainingEnd;

#[derive(Clone)]
struct Images {
    images: Tensor<2>,
    classes: Tensor<1, Int>,
}

impl From<Batch> for Images {
    fn from(batch: Batch) -> Self {
        Self { images: batch.input.rows(), classes: batch.target.flat_index() }
    }
}

#[derive(Module, Debug)]
struct Classifier {
    layer: Linear,
    /// Has no gradient.
    unused: Linear,
    /// Backward passes in a step.
    passes: usize,
}

impl Net for Classifier {}

impl Classifier {
    fn classify(&self, Images { images, classes }: Images) -> ClassificationOutput {
        let output = self.layer.forward(images);
        let loss = CrossEntropyLossConfig::new().init(&output.device());
        let loss = loss.forward(output.clone(), classes.clone());
        ClassificationOutput::new(loss, output, classes)
    }
}

impl TrainStep for Classifier {
    type Input = Images;
    type Output = ClassificationOutput;

    fn step(&self, batch: Images) -> TrainOutput<ClassificationOutput> {
        let again = batch.clone();
        let item = self.classify(batch);
        match self.passes {
            0 => return TrainOutput { grads: GradientsParams::new(), item },
            2 => drop(self.classify(again).loss.backward()),
            _ => {}
        }
        TrainOutput::new(self, item.loss.backward(), item)
    }
}

/// Another loss than in training.
impl InferenceStep for Classifier {
    type Input = Images;
    type Output = ClassificationOutput;

    fn step(&self, batch: Images) -> ClassificationOutput {
        let item = self.classify(batch);
        ClassificationOutput { loss: item.loss + 100.0, ..item }
    }
}

/// The same, with the trainer's backward pass.
#[derive(Deserialize, JsonSchema)]
struct Same {}

impl Task for Same {
    type Model = Classifier;
    type Batch = Images;

    fn metrics(&self) -> Vec<MetricFacts> {
        vec![MetricFacts::larger_is_better("accuracy")]
    }

    fn step(&self, model: &Classifier, batch: Images, context: &StepContext<'_>) -> Result<StepOutput> {
        let item = model.classify(batch);
        let rows = item.output.dims()[0];
        let correct = item.output.argmax(1).reshape([rows]).equal(item.targets).int().sum().float();
        let loss = if context.is_training() { item.loss } else { item.loss + 100.0 };
        Ok(StepOutput::new(loss, rows).metric("accuracy", correct, rows))
    }
}

#[derive(Deserialize, JsonSchema)]
struct Config {
    passes: usize,
}

fn registry() -> Registry {
    Registry::standard().learner::<Classifier>("classifier").task::<Same>("same").model(
        "classifier",
        |c: &Config, facts, device| {
            let inputs = facts.input.as_ref().map_or(1, |input| input.shape.iter().product());
            Classifier { layer: fixed(inputs, 4, device), unused: fixed(2, 2, device), passes: c.passes }
        },
    )
}

/// 100 samples: the last batch of an epoch is short.
const SPEC: &str = "name = \"run\"\nseed = 3\nepochs = 3\nbatch_size = 8\n[model]\nname = \"classifier\"\npasses = 1\n\
    [dataset]\nname = \"shapes\"\ntrain = 100\nval = 30\nsize = 16\nclasses = 4\nworkers = 0\n\
    [optimizer]\nname = \"sgd\"\nlr = 0.02\nmomentum = 0.9\n[metrics]\nlog_every = 1\n[task]\nname = \"classifier\"\n";

fn new_run() -> TestRun {
    TestRun::with(registry(), SPEC)
}

fn run(sets: &[&str], world: usize) -> TestRun {
    let run = new_run();
    assert_eq!(run.train(world, sets).unwrap(), TrainingEnd::Done);
    run
}

#[test]
fn a_train_step_trains_as_a_task_with_its_loss() {
    for world in [1, 2] {
        let (learner, same) = (run(&[], world), run(&["task.name=same"], world));
        for name in ["loss", "accuracy"] {
            assert_eq!(learner.measured(name), same.measured(name), "{name} on {world}");
        }
        assert!(learner.bits() == same.bits(), "on {world}");
        let losses = learner.measured("loss");
        assert!(losses[2][0] < losses[0][0], "it learns: {losses:?}");
        assert!(
            losses.iter().all(|both| both[0] < 50.0 && both[1] > 100.0),
            "an evaluation infers: {losses:?}"
        );
        let accuracy = learner.measured("accuracy");
        assert!(accuracy.iter().flatten().all(|share| *share > 0.0 && *share < 1.0), "{accuracy:?}");
    }
}

/// Its gradients are multiplied by the share of a short micro-batch in its step.
#[test]
fn short_micro_batches_weigh_by_their_samples() {
    // The last step of an epoch has micro-batches of 9 and 1 samples.
    let sets = ["train.accumulate=2", "batch_size=9", "task.name=same"];
    let (learner, same) = (run(&sets[..2], 1), run(&sets, 1));
    assert!(close(&learner.measured("loss"), &same.measured("loss")));
    let weights = |run: &TestRun| run.loaded().model.get("layer.weight").unwrap().to_f32_vec();
    for (a, b) in weights(&learner).iter().zip(weights(&same)) {
        assert!((a - b).abs() < 1e-6, "{a} and {b}");
    }
}

#[test]
fn two_ranks_train_as_one_does_and_resume_with_the_same_bits() {
    let (one, two, parts) = (run(&["batch_size=16"], 1), run(&[], 2), new_run());
    for name in ["loss", "accuracy"] {
        let (one, two) = (one.measured(name), two.measured(name));
        assert!(close(&one, &two), "{name}: {one:?} and {two:?}");
    }
    parts.in_parts(2, &[], &[2, 9]);
    assert_eq!(two.measured("loss"), parts.measured("loss"));
    assert!(two.bits() == parts.bits());
}

#[test]
fn a_train_step_runs_a_backward_pass() {
    for world in [1, 2] {
        let e = new_run().train(world, &["model.passes=0"]).unwrap_err();
        assert_eq!(e.kind, ErrorKind::Spec);
        assert!(e.message.contains("ran no backward pass"), "{}", e.message);
    }
}

/// Nothing of the second pass may be lost.
#[test]
#[should_panic(expected = "graph tape has already been consumed")]
fn a_second_backward_pass_through_the_same_parameters_ends_the_run() {
    let _ = new_run().train(1, &["model.passes=2"]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |sets: &[&str]| testing::resolved(&registry(), SPEC, sets, 1).unwrap_err();
    let f16 = refused(&["precision=f16", "device=wgpu"]);
    assert!(f16.contains("runs its backward pass itself") && f16.contains("bf16"), "{f16}");
    assert!(refused(&["task.key=1"]).contains("unknown key"));
    let other = SPEC.replace("name = \"classifier\"\npasses = 1", "name = \"linear\"");
    let e = TestRun::with(registry(), &other).train(1, &[]).unwrap_err();
    assert!(e.message.contains("task `classifier` trains models of type"), "{}", e.message);
}
