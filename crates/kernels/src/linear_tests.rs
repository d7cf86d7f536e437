//! Linear layers compared with their definition in f64, gradients with central differences.

use super::super::math::tests::erf_f64;
use super::super::testing::{check_gradients, close, noise, same_bits_with_any_threads};
use super::*;

const SHAPES: [LinearShape; 5] = [
    LinearShape { rows: 1, inputs: 1, outputs: 1 },
    LinearShape { rows: 5, inputs: 3, outputs: 7 },
    LinearShape { rows: 130, inputs: 17, outputs: 33 },
    LinearShape { rows: 300, inputs: 11, outputs: 65 },
    LinearShape { rows: 12, inputs: 300, outputs: 10 },
];

const ACTIVATIONS: [Activation; 4] =
    [Activation::None, Activation::Relu, Activation::Gelu, Activation::GeluTanh];

fn activate(activation: Activation, z: f64) -> f64 {
    match activation {
        Activation::None => z,
        Activation::Relu => z.max(0.0),
        Activation::Gelu => 0.5 * z * (1.0 + erf_f64(z * std::f64::consts::FRAC_1_SQRT_2)),
        Activation::GeluTanh => {
            0.5 * z * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (z + 0.044_715 * z.powi(3))).tanh())
        }
    }
}

/// `inputs`: x, weight, bias, residual.
fn reference(shape: LinearShape, activation: Activation, inputs: &[Vec<f64>]) -> Vec<f64> {
    let LinearShape { rows, inputs: width, outputs } = shape;
    let at = |r: usize, o: usize| {
        let sum: f64 = (0..width).map(|i| inputs[0][r * width + i] * inputs[1][o * width + i]).sum();
        activate(activation, sum + inputs[2][o] + inputs[3][r * outputs + o])
    };
    (0..rows * outputs).map(|i| at(i / outputs, i % outputs)).collect()
}

struct Case {
    shape: LinearShape,
    activation: Activation,
    x: Vec<f32>,
    weight: Vec<f32>,
    bias: Vec<f32>,
    residual: Vec<f32>,
    dy: Vec<f32>,
}

impl Case {
    fn new(shape: LinearShape, activation: Activation) -> Self {
        let LinearShape { rows, inputs, outputs } = shape;
        Self {
            shape,
            activation,
            x: noise(rows * inputs, 1),
            weight: noise(outputs * inputs, 2),
            bias: noise(outputs, 3),
            residual: noise(rows * outputs, 4),
            dy: noise(rows * outputs, 5),
        }
    }

    /// Output, then the gradients of x, weight, bias and residual.
    fn run(&self, parallelism: usize) -> Vec<Vec<f32>> {
        let &Case { shape, activation, .. } = self;
        let nan = |len| vec![f32::NAN; len];
        let (mut out, mut slope) = (nan(self.dy.len()), nan(self.dy.len()));
        let terms = Terms { weight: &self.weight, bias: Some(&self.bias), residual: Some(&self.residual) };
        forward(shape, &self.x, terms, activation, &mut out, &mut slope, parallelism);
        let mut without = nan(out.len());
        forward(shape, &self.x, terms, activation, &mut without, &mut [], parallelism);
        assert_eq!(out, without, "with and without the derivative");
        let saved = if activation.has_slope() { &slope } else { &out };
        let (mut dz, mut dx, mut dw, mut db) =
            (nan(out.len()), nan(self.x.len()), nan(self.weight.len()), nan(self.bias.len()));
        backward_activation(activation, saved, &self.dy, &mut dz, parallelism);
        backward_input(shape, &self.weight, &dz, &mut dx, parallelism);
        backward_weight(shape, &self.x, &dz, &mut dw, parallelism);
        backward_bias(shape, &dz, &mut db, parallelism);
        vec![out, dx, dw, db, dz]
    }
}

fn cases() -> impl Iterator<Item = Case> {
    SHAPES.into_iter().flat_map(move |shape| ACTIVATIONS.map(|activation| Case::new(shape, activation)))
}

#[test]
fn outputs_and_gradients_match_the_definition() {
    for case in cases() {
        let inputs = [&case.x[..], &case.weight, &case.bias, &case.residual];
        let results = case.run(2);
        let exact: Vec<Vec<f64>> = inputs.iter().map(|x| x.iter().map(|&v| f64::from(v)).collect()).collect();
        close("output", &results[0], &reference(case.shape, case.activation, &exact), 1e-5);
        let gradients: Vec<&[f32]> = results[1..].iter().map(|g| &g[..]).collect();
        // Where a ReLU has its corner, differences say nothing; so small a sum does not occur here.
        check_gradients(&inputs, &gradients, |inputs| {
            let out = reference(case.shape, case.activation, inputs);
            out.iter().zip(&case.dy).map(|(y, &dy)| y * f64::from(dy)).sum()
        });
    }
}

/// `c[i, j]` is the sum over `l < inner` of `a(i, l) * b(l, j)`.
fn product(
    columns: usize,
    len: usize,
    inner: usize,
    a: impl Fn(usize, usize) -> f32,
    b: impl Fn(usize, usize) -> f32,
) -> Vec<f64> {
    let element = |i, j| (0..inner).map(|l| f64::from(a(i, l)) * f64::from(b(l, j))).sum();
    (0..len).map(|e| element(e / columns, e % columns)).collect()
}

/// Larger than [`SHAPES`], so that rows and columns are divided.
#[test]
fn products_in_several_parts_match_the_definition() {
    let shape = LinearShape { rows: 300, inputs: 520, outputs: 270 };
    let case = Case::new(shape, Activation::None);
    assert_eq!(parts(&mut case.dy.clone(), 270, 520, 3).len(), 9);
    let [out, dx, dw, db, dz] = <[_; 5]>::try_from(case.run(3)).unwrap();
    assert_eq!(dz, case.dy);
    let x = |r: usize, i: usize| case.x[r * 520 + i];
    let w = |o: usize, i: usize| case.weight[o * 520 + i];
    let dz = |r: usize, o: usize| case.dy[r * 270 + o];
    let mut expected = product(270, out.len(), 520, x, |i, o| w(o, i));
    for (e, y) in expected.iter_mut().enumerate() {
        *y += f64::from(case.bias[e % 270]) + f64::from(case.residual[e]);
    }
    close("output", &out, &expected, 1e-5);
    close("dx", &dx, &product(520, dx.len(), 270, dz, w), 1e-5);
    close("dw", &dw, &product(520, dw.len(), 300, |o, r| dz(r, o), x), 1e-5);
    close("db", &db, &product(270, db.len(), 300, |_, _| 1.0, dz), 1e-5);
    same_bits_with_any_threads(|parallelism| case.run(parallelism));
}

/// So few rows that the product is computed transposed, in several parts.
#[test]
fn few_rows_in_several_parts_match_the_definition() {
    let shape = LinearShape { rows: 64, inputs: 300, outputs: 450 };
    for activation in ACTIVATIONS {
        let case = Case::new(shape, activation);
        assert_eq!(parts(&mut case.dy.clone(), 450, 300, 3).len(), 3);
        let inputs = [&case.x, &case.weight, &case.bias, &case.residual]
            .map(|x| x.iter().map(|&v| f64::from(v)).collect::<Vec<_>>());
        close("output", &case.run(3)[0], &reference(shape, activation, &inputs), 1e-5);
        same_bits_with_any_threads(|parallelism| case.run(parallelism));
    }
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    for case in cases() {
        same_bits_with_any_threads(|parallelism| case.run(parallelism));
    }
}

/// However few threads: the scratch memory of a task, and what it applies an activation to, stay small.
#[test]
fn a_part_is_of_limited_size() {
    let mut product = vec![0.0; 100 * 50_000];
    for parallelism in [1, 2] {
        for part in parts(&mut product, 50_000, 768, parallelism) {
            assert!(part.panel.columns() <= MOST_COLUMNS && part.panel.rows() == 100);
        }
        for part in parts(&mut product, 1000, 768, parallelism) {
            assert!(part.panel.columns() <= MOST_COLUMNS && part.panel.rows() <= MOST_ROWS);
        }
    }
}

/// Sizes at which `gemm` chooses other loops: narrow or short products, and sums of more than 512 terms.
#[test]
fn the_bits_of_products_of_unusual_sizes_do_not_depend_on_the_number_of_threads() {
    for (rows, inputs, outputs) in [
        (1000, 1, 6400),
        (1000, 2, 3200),
        (1000, 900, 9),
        (1000, 80, 80),
        (260, 1300, 130),
        (520, 1025, 65),
        (60, 1300, 270),
        (1, 8200, 1024),
        (1, 20_000, 640),
        (2, 8200, 512),
        (100, 600, 2100),
        (257, 513, 257),
    ] {
        let case = Case::new(LinearShape { rows, inputs, outputs }, Activation::None);
        let count = |threads| parts(&mut case.dy.clone(), outputs, inputs, threads).len();
        assert!(count(1) < count(64), "{rows} x {outputs}, {inputs}: always in {} parts", count(1));
        same_bits_with_any_threads(|parallelism| case.run(parallelism));
    }
}

#[test]
fn layers_without_inputs_or_outputs_are_possible() {
    let case = Case::new(LinearShape { rows: 200, inputs: 0, outputs: 1100 }, Activation::None);
    let sums = case.residual.iter().zip(case.bias.iter().cycle()).map(|(r, b)| r + b);
    assert_eq!(case.run(2)[0], sums.collect::<Vec<_>>());
    let mut dx = [f32::NAN; 5 * 1100];
    let shape = LinearShape { rows: 5, inputs: 1100, outputs: 0 };
    backward_input(shape, &[], &[], &mut dx, 2);
    assert_eq!(dx, [0.0; 5 * 1100]);
}

#[test]
fn a_layer_without_bias_and_residual_is_the_product() {
    let shape = LinearShape { rows: 2, inputs: 2, outputs: 2 };
    let mut out = [f32::NAN; 4];
    let terms = Terms { weight: &[1.0, 2.0, 3.0, 4.0], bias: None, residual: None };
    forward(shape, &[1.0, 0.0, 1.0, 1.0], terms, Activation::None, &mut out, &mut [], 1);
    assert_eq!(out, [1.0, 3.0, 3.0, 7.0]);
}

#[test]
fn empty_batches_are_empty() {
    let shape = LinearShape { rows: 0, inputs: 3, outputs: 2 };
    let terms = Terms { weight: &[1.0; 6], bias: Some(&[1.0; 2]), residual: None };
    forward(shape, &[], terms, Activation::Gelu, &mut [], &mut [], 2);
    let (mut dw, mut db) = ([f32::NAN; 6], [f32::NAN; 2]);
    backward_input(shape, &[1.0; 6], &[], &mut [], 2);
    backward_weight(shape, &[], &[], &mut dw, 2);
    backward_bias(shape, &[], &mut db, 2);
    assert_eq!((dw, db), ([0.0; 6], [0.0; 2]));
}
