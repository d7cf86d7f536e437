//! Layer normalisation compared with Burn's own operations.

use super::super::testing::{self, equal, frozen, leaves, pass};
use super::*;
use burn::tensor::Device;

const EPS: f64 = 1e-5;

/// Sums of at most 130 products below 4, in another order: about sqrt(130) * 32 * 2^-25 = 1e-5. An input's gradient is
/// multiplied by the inverse deviation of its row, which is below 5 for the rows here.
const TOLERANCE: f32 = 5e-5;

type Norm = fn(Tensor<2>, Tensor<1>, Tensor<1>) -> Tensor<2>;

fn own(x: Tensor<2>, weight: Tensor<1>, bias: Tensor<1>) -> Tensor<2> {
    layer_norm(x, weight, bias, EPS)
}

fn reference(x: Tensor<2>, weight: Tensor<1>, bias: Tensor<1>) -> Tensor<2> {
    let centred = x.clone() - x.mean_dim(1);
    let variance = (centred.clone() * centred.clone()).mean_dim(1);
    centred / (variance + EPS).sqrt() * weight.unsqueeze() + bias.unsqueeze()
}

fn apply(norm: Norm, rows: usize, width: usize) -> impl Fn(&[Tensor<1>]) -> Tensor<2> {
    move |given| norm(given[0].clone().reshape([rows, width]), given[1].clone(), given[2].clone())
}

#[test]
fn values_and_gradients_equal_burns() {
    for rows in [1, 7, 130] {
        for width in [1, 9, 33] {
            let given = leaves([rows * width, width, width]);
            let apply = |norm| apply(norm, rows, width);
            equal(&format!("{rows} x {width}"), &given, TOLERANCE, apply(own), apply(reference));
        }
    }
}

#[test]
fn leading_dimensions_are_rows() {
    let given = leaves([130 * 9, 9, 9]);
    let cube = |given: &[Tensor<1>]| {
        layer_norm(given[0].clone().reshape([10, 13, 9]), given[1].clone(), given[2].clone(), EPS)
    };
    assert_eq!(pass(&given, cube), pass(&given, apply(own, 130, 9)));
}

#[test]
fn inputs_and_gradients_may_be_views() {
    let (rows, width) = (130, 9);
    let given = leaves([width * rows, 2 * width, width + 1]);
    let strided = |norm: Norm, given: &[Tensor<1>]| {
        let x = given[0].clone().reshape([width, rows]).transpose();
        let weight = given[1].clone().reshape([width, 2]).narrow(1, 1, 1).reshape([width]);
        norm(x, weight, given[2].clone().narrow(0, 1, width)).transpose()
    };
    equal("strided", &given, TOLERANCE, |g| strided(own, g), |g| strided(reference, g));
    let given = leaves([(rows + 2) * width, width, width]);
    let offset = |norm: Norm, given: &[Tensor<1>]| {
        let x = given[0].clone().reshape([rows + 2, width]).narrow(0, 1, rows);
        norm(x, given[1].clone(), given[2].clone()).mean().reshape([1, 1])
    };
    equal("offset", &given, TOLERANCE, |g| offset(own, g), |g| offset(reference, g));
}

#[test]
fn a_tensor_may_be_used_twice() {
    let given = leaves([130 * 33, 33]);
    let twice = |norm: Norm, given: &[Tensor<1>]| {
        let (x, weight) = (given[0].clone().reshape([130, 33]), given[1].clone());
        x.clone() + norm(norm(x, weight.clone(), weight.clone()), weight.clone(), weight)
    };
    // The second deviation may be small where weights are.
    equal("twice", &given, 4.0 * TOLERANCE, |g| twice(own, g), |g| twice(reference, g));
}

#[test]
fn only_inputs_that_require_a_gradient_get_one() {
    frozen(&leaves([130 * 33, 33, 33]), apply(own, 130, 33));
}

#[test]
fn held_activations_keep_their_values() {
    let [x, weight, bias] = leaves([130 * 33, 33, 33]);
    testing::held_activations_keep_their_values(x, |x| {
        let norm = |x: Tensor<2>| own(x, weight.clone(), bias.clone());
        let first = norm(x.clone().reshape([130, 33]));
        [x, first.clone().reshape([130 * 33]), norm(first).reshape([130 * 33])]
    });
}

fn of_sizes(x: [usize; 2], weight: usize, bias: usize) {
    let ones = |len| Tensor::ones([len], &Device::flex());
    layer_norm(Tensor::<2>::ones(x, &Device::flex()), ones(weight), ones(bias), EPS);
}

#[test]
fn accepts_sizes_that_fit() {
    of_sizes([6, 4], 4, 4);
}

/// 24 elements are rows of 3, too.
#[test]
#[should_panic(expected = "width of a layer norm")]
fn rejects_a_weight_of_another_width() {
    of_sizes([6, 4], 3, 3);
}

#[test]
#[should_panic(expected = "lengths of a layer norm")]
fn rejects_a_bias_of_another_width() {
    of_sizes([6, 4], 4, 3);
}
