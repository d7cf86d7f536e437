//! What the tests of the operations share: inputs, comparisons, and passes that find used memory in the pool.

use super::{buffer, recycle, tensor};
pub(super) use crate::models::testing::read;
use burn::tensor::{Device, Tensor, TensorData};
pub(super) use kernels::testing::{bits, noise};

/// A device with autodiff.
pub fn device() -> Device {
    Device::flex().autodiff()
}

/// [`noise`] as a tensor of the device with autodiff.
pub fn random<const D: usize>(dims: [usize; D], seed: u64) -> Tensor<D> {
    Tensor::from_data(TensorData::new(noise(dims.iter().product(), seed), dims), &device())
}

/// Flat inputs of `lens` elements that require gradients.
pub fn leaves<const N: usize>(lens: [usize; N]) -> [Tensor<1>; N] {
    std::array::from_fn(|i| random([lens[i]], i as u64 + 1).require_grad())
}

/// The result of an operation, then the gradient by each of its inputs, if there is one.
pub type Results = Vec<Option<Vec<f32>>>;

/// As [`Results`], without copies: what a later pass writes to their memory shows in them.
struct Held(Vec<Option<Tensor<1>>>);

impl Held {
    fn read(&self) -> Results {
        self.0.iter().map(|t| t.clone().map(read)).collect()
    }
}

fn held<const D: usize>(leaves: &[Tensor<1>], op: &impl Fn(&[Tensor<1>]) -> Tensor<D>) -> Held {
    let out = op(leaves);
    let (dims, len) = (out.dims(), out.shape().num_elements());
    // Another weight for each element of the result, so that gradients of different rows can't be confused.
    let grads = (out.clone() * random(dims, 99)).sum().backward();
    let gradients = leaves.iter().map(|leaf| leaf.grad(&grads));
    Held(std::iter::once(Some(out.inner().reshape([len]))).chain(gradients).collect())
}

/// One pass, forward and backward.
pub fn pass<const D: usize>(leaves: &[Tensor<1>], op: impl Fn(&[Tensor<1>]) -> Tensor<D>) -> Results {
    held(leaves, &op).read()
}

/// Puts buffers full of NaN into the pool, which show in the results of an operation that does not overwrite all of them.
pub fn poison(len: usize) {
    const COUNT: usize = 4;
    (0..COUNT).for_each(|_| drop(buffer(len)));
    (0..COUNT).for_each(|_| recycle(tensor(vec![f32::NAN; len], [len])));
}

/// Three passes of `op`, which use the memory of the passes before them. All give the same bits, those of the first do not
/// change afterwards, and the device without autodiff gives the same result.
#[track_caller]
pub fn three_passes<const D: usize>(
    what: &str,
    leaves: &[Tensor<1>],
    op: impl Fn(&[Tensor<1>]) -> Tensor<D>,
) -> Results {
    let first = held(leaves, &op);
    let results = first.read();
    let later = [held(leaves, &op), held(leaves, &op)];
    let all_bits =
        |results: &Results| results.iter().map(|r| r.as_ref().map(|r| bits(r))).collect::<Vec<_>>();
    for (held, which) in [(&later[0], "second"), (&later[1], "third"), (&first, "first, read again")] {
        assert!(all_bits(&held.read()) == all_bits(&results), "{what}: {which} pass");
    }
    let plain: Vec<_> = leaves.iter().map(|leaf| leaf.clone().inner()).collect();
    let plain = read(op(&plain));
    assert!(bits(&plain) == bits(results[0].as_ref().unwrap()), "{what}: without autodiff");
    results
}

/// Compares [`three_passes`] of `own` with one pass of `theirs`: each element to within `tolerance`, absolute and relative.
/// The passes of `own` find memory full of NaN.
#[track_caller]
pub fn equal<const D: usize>(
    what: &str,
    leaves: &[Tensor<1>],
    tolerance: f32,
    own: impl Fn(&[Tensor<1>]) -> Tensor<D>,
    theirs: impl Fn(&[Tensor<1>]) -> Tensor<D>,
) {
    let expected = pass(leaves, theirs);
    for result in expected.iter().flatten() {
        poison(result.len());
    }
    let found = three_passes(what, leaves, own);
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let which = if i == 0 { "result".to_owned() } else { format!("gradient of input {}", i - 1) };
        match (found, expected) {
            (Some(found), Some(expected)) => close(&format!("{what}: {which}"), found, expected, tolerance),
            (found, expected) => assert_eq!(found, expected, "{what}: {which}"),
        }
    }
}

#[track_caller]
fn close(what: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let allowed = tolerance * (1.0 + expected.abs());
        assert!((found - expected).abs() <= allowed, "{what}[{i}]: {found}, not {expected}");
    }
}

/// For each choice of inputs that require a gradient, exactly these get one, with the bits that it has if all require one.
#[track_caller]
pub fn frozen<const D: usize>(leaves: &[Tensor<1>], op: impl Fn(&[Tensor<1>]) -> Tensor<D>) {
    let all = pass(leaves, &op);
    for chosen in 1..1 << leaves.len() {
        let requires = |i: usize| chosen >> i & 1 == 1;
        let some: Vec<_> =
            leaves.iter().enumerate().map(|(i, l)| l.clone().set_require_grad(requires(i))).collect();
        let found = pass(&some, &op);
        assert_eq!(found[0], all[0], "inputs {chosen:b}");
        for i in 0..leaves.len() {
            let expected = if requires(i) { all[i + 1].clone() } else { None };
            assert_eq!(found[i + 1], expected, "gradient of input {i} of inputs {chosen:b}");
        }
    }
}

/// The activations that `step` returns keep their values, if somebody holds them: over the backward pass from the last of
/// them, and over two steps with other inputs.
#[track_caller]
pub fn held_activations_keep_their_values<const N: usize>(
    x: Tensor<1>,
    step: impl Fn(Tensor<1>) -> [Tensor<1>; N],
) {
    let run = |factor: f32| {
        let activations = step(x.clone() * factor);
        let held = activations.clone().map(|t| t.inner());
        let copies = held.clone().map(read);
        let last = activations.into_iter().next_back().expect("there are some");
        drop(last.sum().backward());
        (held, copies)
    };
    let (held, copies) = run(1.0);
    drop([run(2.0), run(3.0)]);
    for (i, (held, copy)) in held.into_iter().zip(copies).enumerate() {
        assert!(bits(&read(held)) == bits(&copy), "activation {i}");
    }
}
