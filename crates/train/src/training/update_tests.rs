//! Parameter groups against `torch.optim` with `param_groups`, by way of buckets, norm and clipping.

use super::*;
use crate::models::{ALL, Mlp, Net, NetModel};
use crate::optim::testing::plan;
use burn::backend::Flex;
use burn::module::Module;
use burn::nn::LinearConfig;
use burn::tensor::DType;
use collectives::SoloGroup;
use ddp::device::{Compute, Gradient};
use ddp::{BucketCaps, BucketLayout};
use std::sync::Arc;

/// Element `i` of parameter `number`, computed in f32 as in the PyTorch script.
fn start(number: usize, i: usize) -> f32 {
    (i as f64 + 10.0 * number as f64).cos() as f32
}

fn gradient(number: usize, i: usize, step: u64) -> f32 {
    ((0.7 * i as f64 + 0.3 * step as f64 + number as f64).sin() * (1.0 + 0.1 * i as f64)) as f32
}

/// Six steps with `clip_norm = 2` and rates that fall by a tenth: `clip_grad_norm_` and `ExponentialLR` in PyTorch.
fn six_steps(optimizer: &str, device: &Device) -> Vec<Vec<f32>> {
    let plan = plan(optimizer);
    let on = Compute { device: device.clone(), dtype: DType::F32 };
    let mut model = NetModel::new(&on, 0, |device| Ok(Mlp::new(&[3, 2, 4], 0.0, device))).unwrap();
    model
        .edit(ALL, &mut |number, values| (0..).zip(values).for_each(|(i, v)| *v = start(number, i)))
        .unwrap();
    let names: Vec<String> = model.entries().iter().map(|e| e.name.clone()).collect();
    assert_eq!(names, ["0.weight", "0.bias", "2.weight", "2.bias"]);
    model.freeze(&|number| plan.rule_of([names[number].as_str()].into_iter()).is_none());
    steps(6, &plan, Some(2.0), &mut model);
    values(&model)
}

fn values(model: &dyn Model) -> Vec<Vec<f32>> {
    let mut values = Vec::new();
    model.read(ALL, &mut |_, own| values.push(own.to_vec())).unwrap();
    values
}

/// Steps with rates that fall by a tenth.
fn steps(count: u64, plan: &OptimizerPlan, clip_norm: Option<f64>, model: &mut dyn Model) {
    let device = model.device().clone();
    let names: Vec<String> = model.entries().iter().map(|e| e.name.clone()).collect();
    let mut updater = Updater::new(plan, clip_norm, model.entries(), &device);
    let sizes: Vec<_> = model.entries().iter().map(|e| e.trainable().then(|| e.numel())).collect();
    let layout = BucketLayout::new(&sizes, BucketCaps { first: 32, rest: 32 });
    let group = Arc::new(SoloGroup::default());
    let mut reducer = Reducer::new(layout, model.device(), false, names, group, None).unwrap();
    for step in 1..=count {
        reducer.begin(0, true);
        for (number, len) in sizes.iter().enumerate().filter_map(|(number, len)| Some((number, (*len)?))) {
            let values: Vec<f32> = (0..len).map(|i| gradient(number, i, step)).collect();
            let tensor = Tensor::<1>::from_floats(values.as_slice(), &device.clone().without_autodiff());
            reducer.sink().ready(
                number,
                match is_host(&device) {
                    true => Gradient::Host(tensor.try_into_primitive::<Flex>().unwrap()),
                    false => Gradient::Device(tensor),
                },
            );
        }
        reducer.finish().unwrap();
        let rates = updater.rates(|base| base * 0.9f64.powi(step as i32 - 1));
        match reducer.take_from_device() {
            None => drop(updater.apply(model, &reducer, step, &rates, 1.0).unwrap()),
            Some(gradients) => {
                let norm = updater.norm(&gradients, 1.0, 1.0);
                updater.apply_on_device(model, gradients, norm, step, &rates, 1.0, 1.0);
            }
        }
    }
}

/// `0.weight` is frozen, `2.weight` has other values, `2.bias` no decay, `0.bias` those of the table.
const SGD: &str = "name = \"sgd\"\nlr = 0.1\nmomentum = 0.9\nweight_decay = 0.1\n\
    [[group]]\nmatch = \"0.weight\"\nfrozen = true\n\
    [[group]]\nmatch = \"2.weight\"\nlr = 0.01\nmomentum = 0.5\nweight_decay = 0.3\n\
    [[group]]\nmatch = \"2.*\"\nweight_decay = 0.0\n";
const ADAMW: &str = "name = \"adamw\"\nlr = 0.1\nweight_decay = 0.1\n\
    [[group]]\nmatch = [\"0.weight\"]\nfrozen = true\n\
    [[group]]\nmatch = \"2.weight\"\nlr = 0.01\nbetas = [0.8, 0.99]\nweight_decay = 0.3\n\
    [[group]]\nmatch = [\"2.bias\"]\nweight_decay = 0\n";

/// PyTorch 2.15 in f64.
#[rustfmt::skip]
const EXPECTED: [(&str, [&[f64]; 4]); 2] = [
    (SGD, [
        &[1.0, 0.540302277, -0.416146845, -0.989992499, -0.653643608, 0.2836622],
        &[-1.378815269, -0.436187616],
        &[0.389024583, -0.516871801, -0.934699971, -0.471904447, 0.445361826, 0.962804654, 0.587320647, -0.351855484],
        &[0.560977412, 1.641968514, 1.559708388, 0.329517488],
    ]),
    (ADAMW, [
        &[1.0, 0.540302277, -0.416146845, -0.989992499, -0.653643608, 0.2836622],
        &[-1.25171623, -0.391262786],
        &[0.372454082, -0.524738961, -0.938680545, -0.479965781, 0.457100098, 0.989376099, 0.591111762, -0.334715561],
        &[0.603349648, 1.383667563, 1.282999661, 0.331715889],
    ]),
];

fn check(device: &Device, tolerance: f64) {
    for (spec, expected) in EXPECTED {
        for (number, (got, expected)) in six_steps(spec, device).iter().zip(expected).enumerate() {
            assert_eq!(got.len(), expected.len());
            for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
                let off = (f64::from(*got) - expected).abs();
                assert!(off < tolerance, "{spec}\nelement {i} of {number} is {got}, expected {expected}");
            }
        }
    }
}

#[test]
fn groups_match_pytorch() {
    check(&Device::flex(), 3e-6);
}

#[cfg(feature = "wgpu")]
#[test]
fn on_wgpu_groups_match_pytorch() {
    if let Some(device) = ddp::device::testing::wgpu() {
        check(&device, 3e-6);
    }
}

/// The state of a parameter that is not trained has no memory, and the others may have different arrays.
#[test]
fn state_follows_the_groups() {
    let text = "name = \"sgd\"\nlr = 0.1\n[[group]]\nmatch = \"0.*\"\nfrozen = true\n\
                [[group]]\nmatch = \"*.weight\"\nmomentum = 0.9\n";
    let model = NetModel::new(&Compute::host(), 0, |device| Ok(Mlp::new(&[3, 2, 4], 0.0, device))).unwrap();
    let updater = Updater::new(&plan(text), None, model.entries(), model.device());
    let slots: Vec<&[&str]> = (0..4).map(|index| updater.slots(index)).collect();
    assert_eq!(slots, [&[][..], &[], &["momentum_buffer"], &[]]);
    assert_eq!((updater.all_slots(), updater.state().len(2, 0)), (vec!["momentum_buffer"], 8));
}

/// A parameter that was frozen at first takes the step of a new run.
#[test]
fn a_parameter_counts_its_own_updates() {
    assert_eq!([(1, 0), (9, 0), (9, 8), (9, 9)].map(|(step, since)| own_step(step, since)), [1, 9, 1, 1]);
}

/// A linear layer of Burn's, whose module has the transpose of PyTorch's weight.
#[derive(Module, Debug)]
struct Linear {
    linear: burn::nn::Linear,
}

impl Net for Linear {}

/// `torch.optim.Muon` of a weight `[outputs, inputs]`: `"original"` is sqrt(max(1, outputs / inputs)), `"match-rms-adamw"`
/// 0.2 sqrt(max(outputs, inputs)).
#[test]
fn muon_scales_by_the_shape_of_the_state_dict() {
    for (inputs, outputs, expected) in [(2, 8, 2.0 / (0.2 * 8f32.sqrt())), (8, 2, 1.0 / (0.2 * 8f32.sqrt()))]
    {
        let update_of = |adjust: &str| {
            let linear = |device: &Device| {
                let linear = LinearConfig::new(inputs, outputs).with_bias(false).init(device);
                Ok(Linear { linear })
            };
            let mut model = NetModel::new(&Compute::host(), 0, linear).unwrap();
            assert_eq!(model.entries()[0].shape, [outputs, inputs]);
            assert_eq!(model.entries()[0].layout, Layout::Transposed);
            model.edit(ALL, &mut |_, values| values.fill(0.0)).unwrap();
            let optimizer =
                format!("name = \"muon\"\nlr = 1.0\nweight_decay = 0.0\nadjust_lr = \"{adjust}\"");
            steps(1, &plan(&optimizer), None, &mut model);
            values(&model).remove(0)
        };
        let (original, matched) = (update_of("original"), update_of("match-rms-adamw"));
        for (original, matched) in original.iter().zip(&matched) {
            assert!(
                (original / matched - expected).abs() < 1e-5,
                "{inputs} inputs: {original} and {matched}"
            );
        }
    }
}
