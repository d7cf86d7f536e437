//! What one optimizer step costs on this machine, by model: forward, backward and update on synthetic batches, one
//! process. `cargo bench --bench step` prints medians; set RAYON_NUM_THREADS to choose the threads.

use ddp_run::Registry;
use ddp_run::dataset::{DataFacts, FieldFacts, FieldKind};
use ddp_run::model::Input;
use ddp_run::task::Loss;
use ddp_run::testing::{
    BucketCaps, BucketLayout, Compute, FieldData, HostField, JobTree, Model, Plan, Reducer, SoloGroup,
    StandardLoss, TapLadder, Updater, WorldRequest,
};
use std::sync::Arc;
use std::time::Instant;

struct Case {
    name: &'static str,
    spec: &'static str,
    data: Data,
    batch: usize,
    steps: usize,
}

#[derive(Clone, Copy)]
enum Data {
    /// Numbers of this shape, of ten classes.
    Numbers(&'static [usize]),
    /// Windows of as many tokens, of this vocabulary.
    Tokens(usize, usize),
}

const CASES: [Case; 4] = [
    Case {
        name: "mlp 784-512-512-10, SGD",
        spec: "configs/mlp.toml",
        data: Data::Numbers(&[784]),
        batch: 64,
        steps: 200,
    },
    Case {
        name: "cnn on 28x28, AdamW",
        spec: "configs/mnist.toml",
        data: Data::Numbers(&[1, 28, 28]),
        batch: 64,
        steps: 40,
    },
    Case {
        name: "ResNet-18 on 32x32, AdamW",
        spec: "configs/cifar.toml",
        data: Data::Numbers(&[3, 32, 32]),
        batch: 128,
        steps: 8,
    },
    Case {
        name: "GPT 4 x 128 on 64, AdamW",
        spec: "configs/gpt.toml",
        data: Data::Tokens(64, 65),
        batch: 12,
        steps: 40,
    },
];

impl Data {
    fn facts(self) -> [FieldFacts; 2] {
        let field = |shape: &[usize], kind| FieldFacts { shape: shape.to_vec(), kind };
        match self {
            Data::Numbers(shape) => [field(shape, FieldKind::Float), field(&[], FieldKind::Index(10))],
            Data::Tokens(time, vocabulary) => [(); 2].map(|()| field(&[time], FieldKind::Index(vocabulary))),
        }
    }
}

/// A batch of one field: any numbers, or indices in turn.
fn host_field(facts: &FieldFacts, batch: usize) -> HostField {
    let len = batch * facts.shape.iter().product::<usize>();
    let data = match facts.kind {
        FieldKind::Float => FieldData::Float((0..len).map(|i| (i as f32 * 0.37).sin()).collect()),
        FieldKind::Index(bound) => FieldData::Index((0..len).map(|i| (i % bound) as i64).collect()),
    };
    HostField { shape: facts.shape.clone(), data }
}

fn main() {
    println!("{:<28} {:>6} {:>12} {:>12} {:>14}", "model", "batch", "step ms", "best ms", "samples/s");
    for case in &CASES {
        let mut times = run(case);
        times.sort_by(f64::total_cmp);
        let (median, best) = (times[times.len() / 2], times[0]);
        let rate = case.batch as f64 / median;
        println!(
            "{:<28} {:>6} {:>12.2} {:>12.2} {rate:>14.0}",
            case.name,
            case.batch,
            median * 1e3,
            best * 1e3
        );
    }
}

/// Seconds of each step after two to warm up.
fn run(case: &Case) -> Vec<f64> {
    let tree = JobTree::load(case.spec.as_ref(), &[]).unwrap_or_else(|e| panic!("{e}"));
    let plan =
        Plan::resolve(&tree, &Registry::standard(), WorldRequest::new(1)).unwrap_or_else(|e| panic!("{e}"));
    let [input, target] = case.data.facts();
    let (x, y) = (host_field(&input, case.batch), host_field(&target, case.batch));
    let facts = DataFacts { input: Some(input), target: Some(target), ..DataFacts::default() };
    let mut model = plan.model.source.build(&facts, 0, &Compute::host()).unwrap_or_else(|e| panic!("{e}"));
    let mut updater = Updater::new(&plan.optimizer, None, model.entries(), model.device());
    let sizes: Vec<_> = model.entries().iter().map(|e| e.trainable().then(|| e.numel())).collect();
    let layout = BucketLayout::new(&sizes, BucketCaps { first: 1 << 20, rest: 25 << 20 });
    let mut reducer =
        Reducer::new(layout, model.device(), false, Vec::new(), Arc::new(SoloGroup::default()), None)
            .expect("no thread is needed");
    let ladder = TapLadder::new(sizes.len(), model.device());
    let mut times = Vec::new();
    for step in 0..case.steps + 2 {
        let begun = Instant::now();
        one_step(&mut *model, &mut updater, &mut reducer, &ladder, &x, &y, case.batch, step as u64 + 1);
        if step >= 2 {
            times.push(begun.elapsed().as_secs_f64());
        }
    }
    times
}

#[allow(clippy::too_many_arguments)]
fn one_step(
    model: &mut dyn Model,
    updater: &mut Updater,
    reducer: &mut Reducer,
    ladder: &TapLadder,
    x: &HostField,
    y: &HostField,
    batch: usize,
    step: u64,
) {
    let device = model.device().clone();
    reducer.begin(0, true);
    let taps = Arc::new(ladder.taps(reducer.sink()));
    let output = model.forward(Input::from_host(x, batch, &device), taps);
    let loss =
        StandardLoss::CrossEntropy { label_smoothing: 0.0 }.of(output, Input::from_host(y, batch, &device));
    drop(loss.backward());
    reducer.finish().expect("a group of one does not fail");
    updater.apply(model, reducer, step, &[1e-4], 1.0).unwrap_or_else(|e| panic!("{e}"));
}
