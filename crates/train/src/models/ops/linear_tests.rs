//! Linear layers compared with Burn's own operations.

use super::super::testing::{self, equal, frozen, leaves, noise, pass, poison, random};
use super::*;
use burn::tensor::Device;

/// Results and gradients are sums of at most 130 products below 1. Rounded at each step, with partial sums below 16, they
/// differ by about sqrt(130) * 16 * 2^-25 = 5e-6 between two orders of summation.
const TOLERANCE: f32 = 1e-5;

const ACTIVATIONS: [Activation; 4] =
    [Activation::None, Activation::Relu, Activation::Gelu, Activation::GeluTanh];

type Layer = fn(Tensor<2>, Tensor<2>, Option<Tensor<1>>, Option<Tensor<2>>, Activation) -> Tensor<2>;

fn reference(
    x: Tensor<2>,
    w: Tensor<2>,
    bias: Option<Tensor<1>>,
    residual: Option<Tensor<2>>,
    activation: Activation,
) -> Tensor<2> {
    let mut y = x.matmul(w.transpose());
    if let Some(bias) = bias {
        y = y + bias.unsqueeze();
    }
    if let Some(residual) = residual {
        y = y + residual;
    }
    match activation {
        Activation::None => y,
        Activation::Relu => relu(y),
        Activation::Gelu => gelu(y),
        Activation::GeluTanh => burn::tensor::activation::gelu_approximate(y),
    }
}

/// Input, weight, bias and residual.
fn inputs(LinearShape { rows, inputs, outputs }: LinearShape) -> [Tensor<1>; 4] {
    leaves([rows * inputs, outputs * inputs, outputs, rows * outputs])
}

/// Applies `layer` to inputs of the order of [`inputs`].
fn apply(
    layer: Layer,
    LinearShape { rows, inputs, outputs }: LinearShape,
    [has_bias, has_residual]: [bool; 2],
    activation: Activation,
) -> impl Fn(&[Tensor<1>]) -> Tensor<2> {
    move |given| {
        let [x, w, bias, residual] = given else { unreachable!() };
        let (x, w) = (x.clone().reshape([rows, inputs]), w.clone().reshape([outputs, inputs]));
        let residual = has_residual.then(|| residual.clone().reshape([rows, outputs]));
        layer(x, w, has_bias.then(|| bias.clone()), residual, activation)
    }
}

fn each_combination(mut f: impl FnMut([bool; 2], Activation)) {
    for has in [[false, false], [true, false], [false, true], [true, true]] {
        ACTIVATIONS.into_iter().for_each(|activation| f(has, activation));
    }
}

#[test]
fn values_and_gradients_equal_burns() {
    for rows in [1, 7, 130] {
        for (inputs, outputs) in [(1, 1), (1, 33), (9, 1), (9, 9), (33, 9), (33, 33)] {
            let shape = LinearShape { rows, inputs, outputs };
            each_combination(|has, activation| {
                let what = format!("{shape:?}, bias and residual {has:?}, {activation:?}");
                let apply = |layer| apply(layer, shape, has, activation);
                equal(&what, &self::inputs(shape), TOLERANCE, apply(linear), apply(reference));
            });
        }
    }
}

/// Inputs with other strides and offsets, and a gradient of the result that is a transposed view or one number for all.
#[test]
fn inputs_and_gradients_may_be_views() {
    let (rows, inputs, outputs) = (130, 9, 33);
    let given = leaves([inputs * rows, (outputs + 2) * (inputs + 3), 2 * outputs, rows * 2 * outputs]);
    // Rows of a larger tensor are contiguous, but do not begin where it does.
    let parts = leaves([(rows + 2) * inputs, (outputs + 1) * inputs, outputs + 1, (rows + 3) * outputs]);
    each_combination(|[has_bias, has_residual], activation| {
        let strided = |layer: Layer, given: &[Tensor<1>]| {
            let [x, w, bias, residual] = given else { unreachable!() };
            let x = x.clone().reshape([inputs, rows]).transpose();
            let w = w.clone().reshape([outputs + 2, inputs + 3]).slice([2..outputs + 2, 1..inputs + 1]);
            let bias = bias.clone().reshape([outputs, 2]).narrow(1, 1, 1).reshape([outputs]);
            let residual = residual.clone().reshape([rows, 2 * outputs]).narrow(1, outputs, outputs);
            layer(x, w, has_bias.then_some(bias), has_residual.then_some(residual), activation).transpose()
        };
        let offset = |layer: Layer, given: &[Tensor<1>]| {
            let [x, w, bias, residual] = given else { unreachable!() };
            let x = x.clone().reshape([rows + 2, inputs]).narrow(0, 1, rows);
            let w = w.clone().reshape([outputs + 1, inputs]).narrow(0, 1, outputs);
            let bias = bias.clone().narrow(0, 1, outputs);
            let residual = residual.clone().reshape([rows + 3, outputs]).narrow(0, 3, rows);
            let residual = has_residual.then_some(residual);
            layer(x, w, has_bias.then_some(bias), residual, activation).mean().reshape([1, 1])
        };
        let what = format!("bias and residual {:?}, {activation:?}", [has_bias, has_residual]);
        equal(&what, &given, TOLERANCE, |g| strided(linear, g), |g| strided(reference, g));
        equal(&what, &parts, TOLERANCE, |g| offset(linear, g), |g| offset(reference, g));
    });
}

#[test]
fn a_tensor_may_be_used_twice() {
    let (rows, width) = (130, 33);
    // Weights that keep the second layer's inputs below 1.
    let given = [random([rows * width], 1), random([width * width], 2) * 0.1, random([width], 3)]
        .map(|leaf| leaf.require_grad());
    for activation in ACTIVATIONS {
        let twice = |layer: Layer, given: &[Tensor<1>]| {
            let (x, w) = (given[0].clone().reshape([rows, width]), given[1].clone().reshape([width, width]));
            let bias = Some(given[2].clone());
            let y = layer(x.clone(), w.clone(), bias.clone(), Some(x.clone()), activation);
            let z = layer(y.clone(), w.clone(), bias, Some(y), activation);
            z + layer(w.clone(), w, None, None, activation).sum().reshape([1, 1])
        };
        // Sums over 130 rows of products of up to three factors, passed on through a second layer.
        equal(&format!("{activation:?}"), &given, 1e-4, |g| twice(linear, g), |g| twice(reference, g));
    }
}

#[test]
fn only_inputs_that_require_a_gradient_get_one() {
    let shape = LinearShape { rows: 130, inputs: 9, outputs: 33 };
    for activation in ACTIVATIONS {
        frozen(&inputs(shape), apply(linear, shape, [true, true], activation));
    }
}

/// The result of a layer without gradients may require one, and then is a parameter like any other.
#[test]
fn a_result_that_requires_a_gradient_gets_it() {
    let shape = LinearShape { rows: 130, inputs: 33, outputs: 33 };
    let constant = inputs(shape).map(|leaf| leaf.set_require_grad(false));
    let hidden = apply(linear, shape, [true, true], Activation::Gelu)(&constant);
    let given = [hidden.reshape([130 * 33]).require_grad(), leaves([1, 33 * 33])[1].clone()];
    let next = |layer: Layer| {
        move |given: &[Tensor<1>]| {
            let (x, w) = (given[0].clone().reshape([130, 33]), given[1].clone().reshape([33, 33]));
            layer(x.clone(), w, None, Some(x), Activation::Relu)
        }
    };
    equal("a hidden result", &given, 4.0 * TOLERANCE, next(linear), next(reference));
}

#[test]
fn without_rows_weights_have_a_gradient_of_zeros() {
    let shape = LinearShape { rows: 0, inputs: 33, outputs: 40 };
    poison(33 * 40);
    let found = pass(&inputs(shape), apply(linear, shape, [true, true], Activation::Gelu));
    let expected = [vec![], vec![], vec![0.0; 33 * 40], vec![0.0; 40], vec![]];
    assert_eq!(found, expected.map(Some));
}

#[test]
fn held_activations_keep_their_values() {
    let [x, w] = leaves([130 * 33, 33 * 33]);
    for activation in ACTIVATIONS {
        testing::held_activations_keep_their_values(x.clone(), |x| {
            let w = w.clone().reshape([33, 33]);
            let input = x.reshape([130, 33]);
            let hidden = linear(input.clone(), w.clone(), None, None, activation);
            let out = linear(hidden.clone(), w, None, Some(hidden.clone()), activation);
            [input, hidden, out].map(|t| t.reshape([130 * 33]))
        });
    }
}

fn of_sizes(x: [usize; 2], w: [usize; 2], bias: usize, residual: [usize; 2]) {
    let device = Device::flex();
    let matrix =
        |dims: [usize; 2]| Tensor::<1>::from_floats(&noise(dims[0] * dims[1], 1)[..], &device).reshape(dims);
    let bias = Tensor::from_floats(&noise(bias, 1)[..], &device);
    linear(matrix(x), matrix(w), Some(bias), Some(matrix(residual)), Activation::None);
}

#[test]
fn accepts_sizes_that_fit() {
    of_sizes([7, 9], [3, 9], 3, [7, 3]);
}

#[test]
#[should_panic(
    expected = "length of a linear layer's weight: LinearShape { rows: 7, inputs: 9, outputs: 3 }"
)]
fn rejects_a_weight_for_other_inputs() {
    of_sizes([7, 9], [3, 8], 3, [7, 3]);
}

#[test]
#[should_panic(expected = "length of a linear layer's bias: LinearShape { rows: 7, inputs: 9, outputs: 3 }")]
fn rejects_a_bias_for_other_outputs() {
    of_sizes([7, 9], [3, 9], 1, [7, 3]);
}

/// Of the same number of elements.
#[test]
#[should_panic(expected = "shape of a residual: LinearShape { rows: 7, inputs: 9, outputs: 3 }")]
fn rejects_a_residual_of_another_shape() {
    of_sizes([7, 9], [3, 9], 3, [3, 7]);
}
