//! A user's own module: the names of its tensors, and consistent values in every view of it.

use super::{ALL, Input, Model, Net, NetModel, Role};
use base::error::ErrorKind;
use burn::module::{Module, Param, RunningState};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, LinearLayout};
use burn::tensor::{DType, Device, FloatDType, Tensor};
use ddp::device::{Compute, Tracked, drawn};
use std::sync::{Arc, Mutex};

fn linear(inputs: usize, outputs: usize, device: &Device) -> Linear {
    LinearConfig::new(inputs, outputs).with_bias(false).init(device)
}

/// Implements [`Net`] for modules whose forward pass is not tested.
macro_rules! idle {
    ($($net:ty),*) => {$(
        impl Net for $net {
            fn forward(&self, input: Input) -> Tensor<2> {
                input.rows()
            }
        }
    )*};
}

fn model<N: Net>(build: impl FnOnce(&Device) -> N) -> NetModel<N> {
    NetModel::new(&Compute::host(), 1, |device| Ok(build(device))).unwrap()
}

fn values(model: &dyn Model) -> Vec<Vec<f32>> {
    let mut all = vec![Vec::new(); model.entries().len()];
    model.read(ALL, &mut |number, values| all[number] = values.to_vec()).unwrap();
    all
}

/// Runs forward and backward passes for `rows`; returns the gradients by parameter. Each parameter must be tapped once.
fn train(model: &dyn Model, rows: Tensor<2>) -> Vec<Option<Vec<f32>>> {
    let leaves = Arc::new(Mutex::new(Vec::new()));
    let kept = leaves.clone();
    let tap = move |number, tensor: Tracked| {
        let tensor = tensor.into_tensor::<2>();
        kept.lock().unwrap().push((number, tensor.clone()));
        Tracked::from_tensor(tensor)
    };
    let grads = model.forward(Input::from_tensor(rows), Arc::new(tap)).sum().backward();
    let mut found = vec![None; model.entries().len()];
    for (number, leaf) in leaves.lock().unwrap().drain(..) {
        let gradient = leaf.grad(&grads).unwrap().into_data().try_into_vec::<f32>().unwrap();
        assert_eq!(found[number].replace(gradient), None, "parameter {number} is tapped twice");
    }
    found
}

fn evaluate(model: &dyn Model, rows: Tensor<2>) -> Vec<f32> {
    let output = model.evaluator().forward(Input::from_tensor(rows.inner()));
    output.into_data().try_into_vec::<f32>().unwrap()
}

#[derive(Module, Debug)]
struct Normed {
    norm: BatchNorm,
}

impl Net for Normed {
    fn forward(&self, input: Input) -> Tensor<2> {
        // The second use reads the statistics updated by the first.
        self.norm.forward(self.norm.forward(input.rows()) + 1.0)
    }
}

/// Burn uses the biased variance.
#[test]
fn running_statistics_are_current_when_read_evaluated_or_replaced() {
    let mut model = model(|device| Normed { norm: BatchNormConfig::new(1).init(device) });
    let names: Vec<&str> = model.entries().iter().map(|e| e.name.as_str()).collect();
    assert_eq!(names, ["norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"]);
    let rows = || Tensor::<2>::from_floats([[1.0], [5.0]], model.device());
    let tap: ddp::module::Tap = Arc::new(|_, tensor| tensor);
    model.forward(Input::from_tensor(rows()), tap);
    let (mean, variance) = (0.9 * (0.1 * 3.0) + 0.1, 0.9 * (0.9 + 0.1 * 4.0) + 0.1);
    let found = values(&model);
    assert!((found[2][0] - mean).abs() < 1e-5 && (found[3][0] - variance).abs() < 1e-4, "{found:?}");
    let once = |x: f32| (x - found[2][0]) / (found[3][0] + 1e-5).sqrt();
    let got = evaluate(&model, rows());
    let expected = [1.0, 5.0].map(|x| once(once(x) + 1.0));
    assert!(got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{got:?} {expected:?}");
    // No pending update of the forward pass overwrites the new values.
    model
        .edit(&|number| number >= 2, &mut |number, values| values.fill(if number == 2 { 0.0 } else { 1.0 }))
        .unwrap();
    let got = evaluate(&model, Tensor::from_floats([[1.0], [5.0]], model.device()));
    assert!((got[0] - 2.0).abs() < 1e-4 && (got[1] - 6.0).abs() < 1e-4, "{got:?}");
}

#[derive(Module, Debug)]
enum Branch {
    Narrow(Linear),
    Normed(BatchNorm),
}

#[derive(Module, Debug)]
struct Mixed {
    branches: Vec<Branch>,
    pair: (Linear, [Linear; 1]),
    absent: Option<Linear>,
    there: Option<Linear>,
    frozen: Linear,
    teacher: Linear,
    frozen_at_once: Param<Tensor<1>>,
    running_scale: Param<Tensor<1>>,
    seen: RunningState<Tensor<1>>,
    fixed: Tensor<1>,
    tied: Linear,
    width: usize,
}
idle!(Mixed);

fn mixed(device: &Device) -> Mixed {
    let there = linear(2, 3, device);
    Mixed {
        branches: vec![
            Branch::Narrow(linear(2, 3, device)),
            Branch::Normed(BatchNormConfig::new(2).init(device)),
        ],
        pair: (linear(1, 2, device), [linear(2, 1, device)]),
        absent: None,
        frozen: linear(4, 1, device).no_grad(),
        teacher: there.clone().valid().train().no_grad(),
        frozen_at_once: Param::from_tensor(Tensor::ones([2], device)).set_require_grad(false),
        running_scale: Param::from_tensor(Tensor::ones([1], device)),
        seen: RunningState::new(Tensor::zeros([5], device)),
        fixed: Tensor::ones([7], device),
        tied: there.clone(),
        there: Some(there),
        width: 3,
    }
}

/// Roles follow from Burn's types, not from names.
#[test]
fn each_tensor_has_one_name_and_its_role() {
    let expected = [
        ("branches.0.Narrow.weight", vec![3, 2], Role::Parameter),
        ("branches.1.Normed.weight", vec![2], Role::Parameter),
        ("branches.1.Normed.bias", vec![2], Role::Parameter),
        ("branches.1.Normed.running_mean", vec![2], Role::Statistic),
        ("branches.1.Normed.running_var", vec![2], Role::Statistic),
        ("pair.0.weight", vec![2, 1], Role::Parameter),
        ("pair.1.0.weight", vec![1, 2], Role::Parameter),
        ("there.weight", vec![3, 2], Role::Parameter),
        ("frozen.weight", vec![1, 4], Role::Frozen),
        ("teacher.weight", vec![3, 2], Role::Frozen),
        ("frozen_at_once", vec![2], Role::Frozen),
        ("running_scale", vec![1], Role::Parameter),
        ("seen", vec![5], Role::Buffer),
    ];
    // It draws some of its values, from the stream that other tests' models draw from.
    let device = Device::flex().autodiff();
    let net = drawn(&device, 1, || mixed(&device));
    let lazy = NetModel::entries_of(&net);
    assert!(!net.frozen.weight.is_initialized() && !net.pair.0.weight.is_initialized(), "values were drawn");
    let built = model(mixed);
    for entries in [&lazy[..], built.entries()] {
        let found: Vec<_> = entries.iter().map(|e| (e.name.as_str(), e.shape.clone(), e.role)).collect();
        assert_eq!(found, expected);
        let aliases = entries[7].names().map(|e| e.name.as_str()).collect::<Vec<_>>();
        assert_eq!(aliases, ["there.weight", "tied.weight"]);
        assert!(entries.iter().all(|e| e.name == "there.weight" || e.aliases.is_empty()));
    }
}

#[derive(Module, Debug)]
struct Tied {
    first: Linear,
    second: Linear,
    frozen: Linear,
}

impl Net for Tied {
    fn forward(&self, input: Input) -> Tensor<2> {
        self.frozen.forward(self.second.forward(self.first.forward(input.rows())))
    }
}

/// y = f w w x: one gradient, 2 f w x, and a single value after the update.
#[test]
fn tied_parameters_share_a_gradient_and_frozen_ones_have_none() {
    let mut model = model(|device| {
        let first = linear(1, 1, device);
        Tied { second: first.clone(), first, frozen: linear(1, 1, device).no_grad() }
    });
    let rows = |x: f32, model: &NetModel<Tied>| Tensor::<2>::from_floats([[x]], model.device());
    model.edit(ALL, &mut |number, values| values.fill([3.0, 5.0][number])).unwrap();
    assert_eq!(train(&model, rows(7.0, &model)), [Some(vec![2.0 * 5.0 * 3.0 * 7.0]), None]);
    assert_eq!(evaluate(&model, rows(7.0, &model)), [3.0 * 3.0 * 5.0 * 7.0]);
    model.update(&mut |number, tensor| {
        assert_eq!(number, 0, "what is frozen is not the optimizer's");
        tensor - 1.0
    });
    assert_eq!(values(&model), [[2.0], [5.0]]);
    assert_eq!(evaluate(&model, rows(7.0, &model)), [2.0 * 2.0 * 5.0 * 7.0]);
    assert_eq!(train(&model, rows(7.0, &model)), [Some(vec![2.0 * 5.0 * 2.0 * 7.0]), None]);
}

/// `[[optimizer.group]]` freezes what the network itself does not.
#[test]
fn frozen_later_is_as_frozen_by_the_network() {
    let mut model = model(|device| {
        let first = linear(1, 1, device);
        Tied { second: first.clone(), first, frozen: linear(1, 1, device) }
    });
    let rows = |x: f32, model: &NetModel<Tied>| Tensor::<2>::from_floats([[x]], model.device());
    model.edit(ALL, &mut |number, values| values.fill([3.0, 5.0][number])).unwrap();
    assert_eq!(train(&model, rows(7.0, &model)), [Some(vec![2.0 * 5.0 * 3.0 * 7.0]), Some(vec![9.0 * 7.0])]);
    model.freeze(&|number| number == 0);
    let roles = |model: &NetModel<Tied>| model.entries().iter().map(|e| e.role).collect::<Vec<_>>();
    assert_eq!(roles(&model), [Role::Frozen, Role::Parameter]);
    assert!(model.entries()[0].names().all(|e| e.role == Role::Frozen));
    assert_eq!(train(&model, rows(7.0, &model)), [None, Some(vec![9.0 * 7.0])]);
    // It stays so when values are written.
    model.edit(ALL, &mut |_, values| values.fill(2.0)).unwrap();
    model.update(&mut |number, tensor| {
        assert_eq!(number, 1, "what is frozen is not the optimizer's");
        tensor
    });
    assert_eq!(train(&model, rows(7.0, &model)), [None, Some(vec![4.0 * 7.0])]);
}

/// As in PyTorch, where `requires_grad` does not concern buffers.
#[test]
fn the_statistics_of_a_frozen_norm_follow_the_data() {
    let mut model = model(|device| Normed { norm: BatchNormConfig::new(1).init(device) });
    model.freeze(ALL);
    let rows = Tensor::<2>::from_floats([[1.0], [5.0]], model.device());
    let tap = |_, _| panic!("nothing is trained");
    drop(model.forward(Input::from_tensor(rows), Arc::new(tap)));
    let found = values(&model);
    assert_eq!(found[..2], [[1.0], [0.0]]);
    assert!(found[2][0] > 0.2 && found[3][0] > 1.1, "{found:?}");
    let roles: Vec<Role> = model.entries().iter().map(|e| e.role).collect();
    assert_eq!(roles, [Role::Frozen, Role::Frozen, Role::Statistic, Role::Statistic]);
}

#[test]
fn frozen_parameters_are_cast() {
    let on = Compute { dtype: DType::BF16, ..Compute::host() };
    let build = |device: &Device| {
        let first = linear(1, 1, device);
        Tied { second: first.clone(), first, frozen: linear(1, 1, device).no_grad() }
    };
    let mut model = NetModel::new(&on, 1, |device| Ok(build(device))).unwrap();
    model.edit(ALL, &mut |_, values| values.fill(1.0)).unwrap();
    let rows = Tensor::<2>::from_floats([[7.0]], model.device());
    assert_eq!(evaluate(&model, rows.clone()), [7.0]);
    assert_eq!(train(&model, rows), [Some(vec![14.0]), None]);
}

/// Burn reports for a lazy weight of this layout the shape before the transposition.
#[test]
fn a_weight_with_column_layout_has_the_shape_of_its_values() {
    let model = model(|device| {
        let linear = LinearConfig::new(2, 3).with_bias(false).with_layout(LinearLayout::Col);
        Tied {
            first: linear.init(device),
            second: self::linear(3, 1, device),
            frozen: self::linear(1, 1, device),
        }
    });
    let entry = &model.entries()[0];
    assert_eq!((entry.name.as_str(), &entry.shape[..]), ("first.weight", &[3, 2][..]));
    let dict = entry.to_dict(&values(&model)[0]);
    assert_eq!(entry.of_dict(&dict), values(&model)[0]);
    let rows = Tensor::<2>::from_floats([[1.0, 0.0]], model.device());
    let got = train(&model, rows);
    let second = values(&model)[1].iter().map(|w| w * values(&model)[2][0]).collect::<Vec<f32>>();
    // The gradient's row for the first input, in the module's layout [in, out].
    assert_eq!(got[0].as_ref().unwrap()[..3], second);
}

#[derive(Module, Debug)]
struct Two {
    gamma: Param<Tensor<1>>,
    weight: Param<Tensor<1>>,
}
idle!(Two);

#[test]
fn rejects_modules_that_a_checkpoint_can_not_store() {
    let two = |device: &Device| Two {
        gamma: Param::from_tensor(Tensor::ones([1], device)),
        weight: Param::from_tensor(Tensor::ones([1], device)),
    };
    let untied = |device: &Device| {
        let first = linear(1, 1, device);
        let second = Linear { weight: first.weight.clone().map(|w| w.detach() * 2.0 + 1.0), bias: None };
        Tied { second, first, frozen: linear(1, 1, device) }
    };
    let elsewhere = |_: &Device| Normed { norm: BatchNormConfig::new(1).init(&Device::flex()) };
    let wide = |device: &Device| {
        let mut norm = BatchNormConfig::new(1).init(device);
        norm.gamma = Param::from_tensor(Tensor::<1>::ones([1], device).cast(FloatDType::F64));
        Normed { norm }
    };
    fn refused<N: Net>(build: impl FnOnce(&Device) -> N, rename: &str) {
        let error = NetModel::new(&Compute::host(), 1, |device| Ok(build(device))).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Spec);
        assert!(error.message.contains(rename), "{error}");
    }
    refused(two, "two tensors of the model are named `weight`");
    refused(untied, "`first.weight`, `second.weight` have the same parameter id, but different values");
    refused(elsewhere, "tensor `norm.weight` is on another device");
    refused(wide, "tensor `norm.weight` has type F64; only f32 is supported");
}
