//! `muon`: `torch.optim.Muon` for tensors with two or more dimensions (taken as `[d0, rest]`), AdamW for the others,
//! which PyTorch leaves to a second optimizer. Newton-Schulz runs in f32 (PyTorch: bf16) on one thread, so that its
//! bits do not depend on the number of threads; they do depend on the CPU, through the GEMM kernel.

use super::adam::{Adam, Decoupled};
use super::rule::{Host, OnDevice, RuleTarget, UpdateRule};
use super::{DecayOn, clip, device, slots};
use burn::tensor::Tensor;
use kernels::formula::lerp;
use kernels::{MatMul, Matrix, Panel, fused};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use spec::choice;

/// `torch.optim.Muon`. Tensors with fewer than two dimensions take AdamW with `betas` 0.9 and 0.999, `eps` 1e-8 and the
/// same `lr` and `weight_decay`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub struct Muon {
    /// Learning rate.
    #[default = 1e-3]
    #[schemars(range(min = 0.0))]
    pub lr: f64,
    /// Momentum factor.
    #[default = 0.95]
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub momentum: f64,
    /// Nesterov momentum.
    #[default = true]
    pub nesterov: bool,
    /// Newton-Schulz iterations.
    #[default = 5]
    #[schemars(range(min = 1, max = 100))]
    pub ns_steps: usize,
    /// Scale of a matrix's update (PyTorch's `adjust_lr_fn`).
    pub adjust_lr: AdjustLr,
    /// Decoupled weight decay.
    #[default = 0.1]
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// Which parameters get weight decay.
    pub decay: DecayOn,
    /// Matrices are the transpose of those in the state dict.
    #[serde(skip)]
    transposed: bool,
}

choice! {
    /// Scale of a matrix's update (PyTorch's `adjust_lr_fn`).
    AdjustLr:
    /// 0.2 sqrt(max(rows, columns)): updates of AdamW's magnitude, so that the same learning rate suits both.
    MatchRmsAdamw = "match-rms-adamw",
    /// sqrt(max(1, rows / columns)) of the matrix in the state dict, where a linear layer has a row per output.
    Original = "original",
}

impl Muon {
    fn adamw(&self) -> Adam<Decoupled> {
        Adam { weight_decay: self.weight_decay, decay: self.decay, ..Adam::default() }
    }

    /// The factors of the parameter and of the orthogonalised update.
    fn shrink_and_size(&self, lr: f64, shape: &[usize]) -> (f32, f32) {
        let (rows, cols) = match as_matrix(shape) {
            (cols, rows) if self.transposed => (rows, cols),
            matrix => matrix,
        };
        let (a, b) = (rows as f64, cols as f64);
        let adjusted = lr
            * match self.adjust_lr {
                AdjustLr::Original => (a / b).max(1.0).sqrt(),
                AdjustLr::MatchRmsAdamw => 0.2 * a.max(b).sqrt(),
            };
        ((1.0 - lr * self.decay.decay(self.weight_decay, shape)) as f32, adjusted as f32)
    }
}

/// Rows and columns of a tensor of two or more dimensions taken as `[d0, rest]`.
fn as_matrix(shape: &[usize]) -> (usize, usize) {
    (shape[0], shape[1..].iter().product())
}

impl UpdateRule for Muon {
    fn slots(&self) -> &'static [&'static str] {
        &["momentum_buffer", "exp_avg", "exp_avg_sq"]
    }

    fn slot_shape(&self, slot: usize, shape: &[usize]) -> Vec<usize> {
        if (slot == 0) == (shape.len() >= 2) { shape.to_vec() } else { vec![0] }
    }

    fn of_transposed(&self) -> Option<Self> {
        Some(Self { transposed: true, ..self.clone() })
    }

    fn step<R: RuleTarget>(&self, step: u64, lr: f64, shape: &[usize], on: R) -> R::Updated {
        if shape.len() < 2 {
            return self.adamw().step(step, lr, shape, on.skip_slots(1));
        }
        let (take, momentum) = ((1.0 - self.momentum) as f32, self.momentum as f32);
        let (shrink, size) = self.shrink_and_size(lr, shape);
        let host = |Host { scale, param, grad, state }: Host<'_, '_>| {
            let [buffer, _, _] = slots::<3>(state);
            let mut update = vec![0.0f32; param.len()];
            let nesterov = self.nesterov;
            fused::for_each(&mut update, grad, [buffer], |_, g, [m]| {
                let g = g * scale;
                let m = lerp(m, g, take);
                (if nesterov { lerp(g, m, momentum) } else { m }, [m])
            });
            let (rows, cols) = as_matrix(shape);
            orthogonalise(&mut update, rows, cols, self.ns_steps);
            fused::for_each(param, &update, [], |p, u, []| (p * shrink - size * u, []));
        };
        let device = |OnDevice { scale, param, grad, state }: OnDevice<'_>| {
            device::for_all(param, grad, scale, &mut state[..1], |p, g, [m]| {
                let m = device::lerp(m, g.clone(), take);
                let update = if self.nesterov { device::lerp(g, m.clone(), momentum) } else { m.clone() };
                let update = orthogonalise_on_device(update, shape, self.ns_steps);
                (p * shrink - update * size, [m])
            })
        };
        on.either(host, device)
    }
}

/// Coefficients of Keller Jordan.
const A: f32 = 3.4445;
const B: f32 = -4.775;
const C: f32 = 2.0315;

/// Orthogonalises row-major `x` (`rows` x `cols`): `steps` quintic Newton-Schulz iterations, which bring its singular
/// values close to one.
fn orthogonalise(x: &mut [f32], rows: usize, cols: usize, steps: usize) {
    if x.is_empty() {
        return;
    }
    let norm = clip::global_norm([&*x]).max(1e-7) as f32;
    x.iter_mut().for_each(|v| *v /= norm);
    let (n, k, is_wide) = (rows.min(cols), rows.max(cols), rows <= cols);
    let mut gram = vec![0.0f32; n * n];
    let mut poly = vec![0.0f32; n * n];
    let mut next = vec![0.0f32; n * k];
    let product = |out: &mut [f32], width: usize, inner: usize, left: Matrix, right: Matrix| {
        MatMul { inner, scale: 1.0, accumulate: false }.run(Panel::whole(out, width), left, right);
    };
    for _ in 0..steps {
        let matrix = Matrix::rows(x, cols);
        // The Gram matrix of the shorter side.
        let short = if is_wide { matrix } else { matrix.transposed() };
        product(&mut gram, n, k, short, short.transposed());
        product(&mut poly, n, n, Matrix::rows(&gram, n), Matrix::rows(&gram, n));
        poly.iter_mut().zip(&gram).for_each(|(p, g)| *p = B * g + C * *p);
        let poly = Matrix::rows(&poly, n);
        let (left, right) = if is_wide { (poly, matrix) } else { (matrix, poly.transposed()) };
        product(&mut next, cols, n, left, right);
        x.iter_mut().zip(&next).for_each(|(x, n)| *x = A * *x + n);
    }
}

/// [`orthogonalise`] of a flat tensor of this shape.
fn orthogonalise_on_device(x: Tensor<1>, shape: &[usize], steps: usize) -> Tensor<1> {
    let (rows, cols) = as_matrix(shape);
    let norm = device::norm(x.clone()).clamp_min(1e-7);
    let x = (x / norm).reshape([rows, cols]);
    let mut x = if rows <= cols { x } else { x.transpose() };
    for _ in 0..steps {
        let gram = x.clone().matmul(x.clone().transpose());
        let poly = gram.clone() * B + gram.clone().matmul(gram) * C;
        x = x.clone() * A + poly.matmul(x);
    }
    let x = if rows <= cols { x } else { x.transpose() };
    x.reshape([rows * cols])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orthogonalise_brings_singular_values_near_one_in_both_orientations() {
        for (rows, cols) in [(3, 7), (7, 3), (4, 4), (1, 5), (5, 1)] {
            let mut x: Vec<f32> = (0..rows * cols).map(|i| ((i * 37 + 11) % 23) as f32 - 11.0).collect();
            orthogonalise(&mut x, rows, cols, 5);
            let n = rows.min(cols);
            // The trace of the Gram matrix is the sum of squared singular values, each of which is in about [0.7, 1.2].
            let trace = x.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>();
            assert!((0.4 * n as f64..1.5 * n as f64).contains(&trace), "{rows}x{cols}: {trace}");
        }
    }
}
