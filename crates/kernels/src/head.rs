//! The last linear layer of a classifier or language model together with the cross-entropy of its logits, of which only those of some rows
//! exist at a time. Gradients are computed in the same pass (Hsu et al., 2024, arXiv:2410.10989).

use super::cross_entropy;
use super::linear::{self, Activation, LinearShape, Terms, backward_input, weight_gradient};
use super::tasks::{for_each, scratch};

/// Rows whose logits exist at a time: as many as [`linear`] multiplies without transposing the weight.
pub const ROWS: usize = linear::ROWS;

/// What is summed over the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HeadSums {
    /// The losses.
    pub loss: f64,
    /// The losses without label smoothing.
    pub unsmoothed: f64,
    /// Rows whose target has the highest logit.
    pub correct: usize,
    /// Rows whose target has one of the five highest logits.
    pub top5: usize,
}

/// Logits are `x w^T`, of `shape`, for the cross-entropy of [`cross_entropy::forward`] with `targets`. `dx` and `dw`, both empty or shaped like
/// `x` and `weight`, become the gradients of its mean.
///
/// Panics if a slice's length does not match `shape`, or a target is not one of the outputs.
#[allow(clippy::too_many_arguments)]
pub fn forward(
    shape: LinearShape,
    x: &[f32],
    weight: &[f32],
    targets: &[u32],
    smoothing: f64,
    dx: &mut [f32],
    dw: &mut [f32],
    parallelism: usize,
) -> HeadSums {
    let LinearShape { rows, inputs, outputs } = shape;
    assert_eq!(targets.len(), rows, "number of targets: {shape:?}");
    let trains = !dx.is_empty() || !dw.is_empty();
    assert!(
        !trains || dx.len() == x.len() && dw.len() == weight.len(),
        "lengths of a head's gradients: {shape:?}"
    );
    let most = ROWS.min(rows);
    let (mut logits, mut gradient) =
        (scratch(most * outputs), scratch(if trains { most * outputs } else { 0 }));
    let mut all = HeadSums::default();
    for (first, targets) in (0..rows).step_by(ROWS).zip(targets.chunks(ROWS)) {
        let these = LinearShape { rows: targets.len(), ..shape };
        let of = first * inputs..(first + these.rows) * inputs;
        let logits = &mut logits[..these.rows * outputs];
        let terms = Terms { weight, bias: None, residual: None };
        linear::forward(these, &x[of.clone()], terms, Activation::None, logits, &mut [], parallelism);
        let gradient = if trains { &mut gradient[..logits.len()] } else { &mut [][..] };
        let [loss, unsmoothed] =
            cross_entropy::sums(outputs, logits, targets, rows, smoothing, gradient, parallelism);
        all.loss += loss;
        all.unsmoothed += unsmoothed;
        let mut above = vec![0; these.rows];
        let tasks = above.iter_mut().zip(logits.chunks_exact(outputs)).zip(targets);
        for_each(parallelism, tasks, |((above, row), target)| *above = rank_of(row, *target as usize));
        all.correct += above.iter().filter(|above| **above == 0).count();
        all.top5 += above.iter().filter(|above| **above < 5).count();
        if trains {
            backward_input(these, weight, gradient, &mut dx[of.clone()], parallelism);
            weight_gradient(these, &x[of], gradient, dw, first > 0, parallelism);
        }
    }
    if rows == 0 {
        dw.fill(0.0);
    }
    all
}

/// The number of classes ranked before `label`, by score. Of equal scores the lower index comes first, as in `argmax`;
/// NaN comes before all other scores, as in PyTorch. All, for a label that is none of them.
#[allow(clippy::neg_cmp_op_on_partial_ord, reason = "NaN is not below")]
pub fn rank_of(row: &[f32], label: usize) -> usize {
    let Some(&own) = row.get(label) else { return row.len() };
    if own.is_nan() {
        return row[..label].iter().filter(|s| s.is_nan()).count();
    }
    // Not below: greater, equal or NaN.
    let before = row[..label].iter().filter(|s| !(**s < own)).count();
    let after = row[label + 1..].iter().filter(|s| !(**s <= own)).count();
    before + after
}

#[cfg(test)]
mod tests {
    use super::super::testing::{bits, close, exact, noise, same_bits_with_any_threads};
    use super::*;

    const SHAPES: [LinearShape; 5] = [
        LinearShape { rows: 1, inputs: 1, outputs: 1 },
        LinearShape { rows: 5, inputs: 3, outputs: 7 },
        LinearShape { rows: 128, inputs: 9, outputs: 33 },
        LinearShape { rows: 129, inputs: 16, outputs: 70 },
        LinearShape { rows: 300, inputs: 8, outputs: 300 },
    ];

    fn inputs(shape: LinearShape) -> ([Vec<f32>; 2], Vec<u32>) {
        let LinearShape { rows, inputs, outputs } = shape;
        let targets = (0..rows).map(|row| (row * 7 % outputs) as u32).collect();
        ([noise(rows * inputs, 1), noise(outputs * inputs, 2)], targets)
    }

    fn run(shape: LinearShape, smoothing: f64, parallelism: usize) -> (HeadSums, Vec<Vec<f32>>) {
        let ([x, w], targets) = inputs(shape);
        let (mut dx, mut dw) = (vec![f32::NAN; x.len()], vec![f32::NAN; w.len()]);
        let sums = forward(shape, &x, &w, &targets, smoothing, &mut dx, &mut dw, parallelism);
        assert_eq!(forward(shape, &x, &w, &targets, smoothing, &mut [], &mut [], parallelism), sums);
        (sums, vec![dx, dw])
    }

    /// In f64: the sums, and the gradients by x and w.
    fn reference(shape: LinearShape, smoothing: f64) -> ([f64; 2], Vec<Vec<f64>>) {
        let LinearShape { rows, inputs: width, outputs } = shape;
        let ([x, w], targets) = inputs(shape);
        let (x, w) = (exact(&x), exact(&w));
        let (mut dx, mut dw) = (vec![0.0; x.len()], vec![0.0; w.len()]);
        let mut sums = [0.0; 2];
        for row in 0..rows {
            let (x, target) = (&x[row * width..][..width], targets[row] as usize);
            let logits: Vec<f64> =
                w.chunks(width).map(|w| w.iter().zip(x).map(|(w, x)| w * x).sum()).collect();
            let total: f64 = logits.iter().map(|logit| logit.exp()).sum();
            for (class, logit) in logits.iter().enumerate() {
                let is_target = if class == target { 1.0 } else { 0.0 };
                let wanted = (1.0 - smoothing) * is_target + smoothing / outputs as f64;
                let loss = total.ln() - logit;
                sums[0] += wanted * loss;
                sums[1] += is_target * loss;
                let dz = (logit.exp() / total - wanted) / rows as f64;
                for i in 0..width {
                    dx[row * width + i] += dz * w[class * width + i];
                    dw[class * width + i] += dz * x[i];
                }
            }
        }
        (sums, vec![dx, dw])
    }

    #[test]
    fn sums_and_gradients_match_the_definition() {
        for shape in SHAPES {
            for smoothing in [0.0, 0.2] {
                let ((found, gradients), (sums, expected)) =
                    (run(shape, smoothing, 2), reference(shape, smoothing));
                for (found, expected) in [found.loss, found.unsmoothed].into_iter().zip(sums) {
                    assert!(
                        (found - expected).abs() < 1e-6 * shape.rows as f64,
                        "{shape:?}: {found} {expected}"
                    );
                }
                close("dx", &gradients[0], &expected[0], 1e-6);
                close("dw", &gradients[1], &expected[1], 1e-6);
            }
        }
    }

    #[test]
    fn as_many_rows_are_correct_as_of_all_logits() {
        for shape in SHAPES {
            let ([x, w], targets) = inputs(shape);
            let mut logits = vec![0.0; shape.rows * shape.outputs];
            let terms = Terms { weight: &w, bias: None, residual: None };
            linear::forward(shape, &x, terms, Activation::None, &mut logits, &mut [], 1);
            let rows = logits.chunks(shape.outputs).zip(&targets);
            let above: Vec<usize> = rows.map(|(row, target)| rank_of(row, *target as usize)).collect();
            let (found, _) = run(shape, 0.0, 1);
            assert_eq!(found.correct, above.iter().filter(|above| **above == 0).count());
            assert_eq!(found.top5, above.iter().filter(|above| **above < 5).count());
        }
    }

    #[test]
    fn the_bits_do_not_depend_on_the_number_of_threads() {
        for shape in SHAPES {
            same_bits_with_any_threads(|parallelism| {
                let (sums, mut all) = run(shape, 0.1, parallelism);
                all.push(vec![sums.loss as f32, sums.unsmoothed as f32]);
                all
            });
        }
    }

    /// So few rows are those of the separate kernels.
    #[test]
    fn rows_of_one_part_have_the_bits_of_separate_layers() {
        let shape = SHAPES[2];
        let ([x, w], targets) = inputs(shape);
        let mut logits = vec![0.0; shape.rows * shape.outputs];
        let terms = Terms { weight: &w, bias: None, residual: None };
        linear::forward(shape, &x, terms, Activation::None, &mut logits, &mut [], 1);
        let mut dz = vec![0.0; logits.len()];
        let loss = cross_entropy::forward(shape.outputs, &logits, &targets, 0.1, &mut dz, 1);
        let (mut dx, mut dw) = (vec![0.0; x.len()], vec![0.0; w.len()]);
        backward_input(shape, &w, &dz, &mut dx, 1);
        linear::backward_weight(shape, &x, &dz, &mut dw, 1);
        let (sums, gradients) = run(shape, 0.1, 1);
        assert_eq!((sums.loss / shape.rows as f64) as f32, loss);
        assert_eq!([bits(&gradients[0]), bits(&gradients[1])], [bits(&dx), bits(&dw)]);
    }

    #[test]
    fn ties_and_nan_rank_as_in_argmax() {
        let nan = f32::NAN;
        for (row, label, expected) in [
            (&[1.0, 2.0][..], 1, 0),
            (&[3.0, 3.0], 0, 0),
            (&[3.0, 3.0], 1, 1),
            (&[nan, 1.0, 2.0], 1, 2),
            (&[1.0, nan, nan], 2, 1),
            (&[1.0, nan, nan], 1, 0),
            (&[0.0, -0.0], 1, 1),
            (&[1.0], 1, 1),
        ] {
            assert_eq!(rank_of(row, label), expected, "{row:?}, {label}");
        }
    }
}
