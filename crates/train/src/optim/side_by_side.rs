//! Compares both forms of every optimizer on the same values: host slices (which `golden` compares with references) and
//! tensor operations, on Burn's CPU backend and, with the feature `wgpu`, fused on a device.

use super::testing::{gradient, plan, start};
use super::{Optimizer, standard_kinds};
use burn::tensor::{Device, Tensor};

/// Enough for RAdam's rectified update, which starts after the fifth step.
const STEPS: u64 = 9;

/// Element-wise updates: both forms do the same f32 operations in the same order; a GPU's compiler may fuse some.
const EXACT: f64 = 0.0;
/// Updates with sums: f64 on the host, f32 on the device. Muon's matrix products sum in another order.
const CLOSE: f64 = 2e-6;

#[rustfmt::skip]
const CASES: [(&str, f64); 34] = [
    ("name = \"sgd\"\nweight_decay = 0.1", EXACT),
    ("name = \"sgd\"\nmomentum = 0.9\ndampening = 0.1\nweight_decay = 0.1", EXACT),
    ("name = \"sgd\"\nmomentum = 0.9\nnesterov = true\nweight_decay = 0.1", EXACT),
    ("name = \"sgd\"\nmomentum = 0.9\nweight_decay = 0.1\ndecay = \"matrices\"", EXACT),
    ("name = \"adam\"\nweight_decay = 0.1\neps = 0.1", EXACT),
    ("name = \"adam\"\namsgrad = true\nbetas = [0.4, 0.6]\neps = 0.1", EXACT),
    ("name = \"adamw\"\nweight_decay = 0.1", EXACT),
    ("name = \"adamw\"\nweight_decay = 0.1\namsgrad = true\ndecay = \"matrices\"", EXACT),
    ("name = \"rmsprop\"\nweight_decay = 0.1\neps = 0.1", EXACT),
    ("name = \"rmsprop\"\nweight_decay = 0.1\nmomentum = 0.5", EXACT),
    ("name = \"rmsprop\"\nweight_decay = 0.1\ncentered = true", EXACT),
    ("name = \"rmsprop\"\nweight_decay = 0.1\nmomentum = 0.5\ncentered = true\neps = 0.1", EXACT),
    ("name = \"adagrad\"\nweight_decay = 0.1\nlr_decay = 0.1\ninitial_accumulator_value = 0.1\neps = 0.1", EXACT),
    ("name = \"adadelta\"\nweight_decay = 0.1\neps = 0.1", EXACT),
    ("name = \"adamax\"\nweight_decay = 0.1\neps = 0.1", EXACT),
    ("name = \"nadam\"\nweight_decay = 0.1\neps = 0.1", EXACT),
    ("name = \"nadam\"\nweight_decay = 0.1\ndecoupled_weight_decay = true", EXACT),
    ("name = \"radam\"\nweight_decay = 0.1\neps = 0.1", EXACT),
    ("name = \"radam\"\nweight_decay = 0.1\ndecoupled_weight_decay = true", EXACT),
    ("name = \"adafactor\"\nweight_decay = 0.1", CLOSE),
    ("name = \"adafactor\"\nbeta2_decay = -0.2\nd = 0.3", CLOSE),
    ("name = \"adafactor\"\neps1 = 2.0\neps2 = 3.0", CLOSE),
    ("name = \"lion\"\nweight_decay = 0.1", EXACT),
    ("name = \"adan\"\nweight_decay = 0.1\neps = 0.1", EXACT),
    ("name = \"adan\"\nweight_decay = 0.1\nno_prox = true", EXACT),
    ("name = \"lamb\"\nweight_decay = 0.1\neps = 0.1", CLOSE),
    ("name = \"lamb\"\nweight_decay = 0.1\ntrust_ratio = false", EXACT),
    ("name = \"lars\"\nweight_decay = 0.1\neps = 0.01", CLOSE),
    ("name = \"lars\"\ntrust_coefficient = 0.1", CLOSE),
    ("name = \"muon\"\nlr = 0.1", CLOSE),
    ("name = \"muon\"\nnesterov = false", CLOSE),
    ("name = \"muon\"\nlr = 0.1\nadjust_lr = \"original\"", CLOSE),
    ("name = \"muon\"\nns_steps = 1\nweight_decay = 0.0", CLOSE),
    ("name = \"muon\"\ndecay = \"matrices\"", CLOSE),
];

/// `[6, 4]`: more rows than columns, for Muon's Gram matrix.
const SHAPES: [&[usize]; 4] = [&[5], &[4, 6], &[6, 4], &[3, 2, 3, 3]];

/// One parameter and its state in both forms.
struct Sides {
    shape: &'static [usize],
    host: Vec<Vec<f32>>,
    tensors: Vec<Tensor<1>>,
    device: Device,
}

impl Sides {
    /// The parameter first, then zeros for each slot.
    fn new(optimizer: &dyn Optimizer, shape: &'static [usize], param: Vec<f32>, device: &Device) -> Self {
        let slots = 0..optimizer.slots().len();
        let zeros = slots.map(|slot| vec![0.0; optimizer.slot_shape(slot, shape).iter().product()]);
        let host: Vec<Vec<f32>> = std::iter::once(param).chain(zeros).collect();
        let tensors = host.iter().map(|values| Tensor::from_data(values.as_slice(), device)).collect();
        Self { shape, host, tensors, device: device.clone() }
    }

    fn step(&mut self, optimizer: &dyn Optimizer, step: u64, lr: f64, scale: f32, grad: &[f32]) {
        let (param, state) = self.host.split_first_mut().unwrap();
        let mut state: Vec<&mut [f32]> = state.iter_mut().map(Vec::as_mut_slice).collect();
        optimizer.update(step, lr, scale, self.shape, param, grad, &mut state);

        let (param, state) = self.tensors.split_first_mut().unwrap();
        let scale = Tensor::from_data([scale], &self.device);
        let grad = Tensor::from_data(grad, &self.device);
        *param = optimizer.update_on_device(step, lr, scale, self.shape, param.clone(), grad, state);
    }

    /// Compares relative to the element, or to the tensor's root mean square if that is larger: rounding of a factor
    /// common to the whole tensor (a norm) affects small elements too.
    fn check(&self, tolerance: f64, what: &str) {
        for (index, (host, tensor)) in self.host.iter().zip(&self.tensors).enumerate() {
            let device = tensor.to_data().try_into_vec::<f32>().unwrap();
            assert_eq!(device.len(), host.len(), "{what}\ntensor {index} of {:?}", self.shape);
            let squares = host.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>();
            let rms = (squares / host.len().max(1) as f64).sqrt();
            for (i, (got, expected)) in device.iter().zip(host).enumerate() {
                let off = (f64::from(*got) - f64::from(*expected)).abs();
                assert!(
                    off <= tolerance * rms.max(f64::from(expected.abs())),
                    "{what}\n{:?}, tensor {index} (0: parameter, then state), element {i}: {got} on the device, \
                     {expected} on the host",
                    self.shape
                );
            }
        }
    }
}

/// `least`: minimum of the tolerance in every case.
fn compare(device: &Device, shapes: &[&'static [usize]], least: f64) {
    for (spec, tolerance) in CASES {
        let (plan, optimizer) = (plan(spec), plan(spec).optimizer);
        for &shape in shapes {
            let numel: usize = shape.iter().product();
            let mut sides = Sides::new(&*optimizer, shape, (0..numel).map(start).collect(), device);
            for step in 1..=STEPS {
                // Every seventh element never has a gradient; learning rate and clip coefficient change from step to step.
                let grad: Vec<f32> =
                    (0..numel).map(|i| if i % 7 == 2 { 0.0 } else { 2.0 * gradient(i, step) }).collect();
                let (lr, scale) = (plan.lr * (1.0 - 0.07 * step as f64), 0.5 / step as f32);
                sides.step(&*optimizer, step, lr, scale, &grad);
                sides.check(tolerance.max(least), &format!("{spec}\nstep {step}"));
            }
        }
    }
}

#[test]
fn tensor_operations_match_slices() {
    compare(&Device::flex(), &SHAPES, EXACT);
}

#[test]
fn parameters_and_gradients_of_zero_take_the_same_branch() {
    for (spec, _) in CASES {
        let (plan, optimizer) = (plan(spec), plan(spec).optimizer);
        for (param, grad) in [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0)] {
            let mut sides = Sides::new(&*optimizer, &[4, 6], vec![param; 24], &Device::flex());
            for step in 1..=2 {
                sides.step(&*optimizer, step, plan.lr, 1.0, &[grad; 24]);
                sides.check(CLOSE, &format!("{spec}\nparameters {param}, gradients {grad}"));
            }
        }
    }
}

#[cfg(feature = "wgpu")]
#[test]
fn wgpu_kernels_match_slices() {
    let Some(device) = ddp::device::testing::wgpu() else { return };
    // Only two shapes: most of the time is spent compiling kernels.
    compare(&device, &[SHAPES[0], SHAPES[2]], CLOSE);
}

#[test]
fn every_optimizer_has_a_case() {
    let tested: Vec<String> = CASES.iter().map(|(spec, _)| plan(spec).name).collect();
    for (name, _) in standard_kinds() {
        assert!(tested.iter().any(|tested| tested == name), "{name}");
    }
}
