//! `adafactor`: `torch.optim.Adafactor`, which stores the second moment of a matrix as row and column means. Tensors
//! with more than two dimensions are stacks of matrices over their last two.

use super::rule::{Host, OnDevice, RuleTarget, UpdateRule};
use super::{DecayOn, clip, device, slots};
use burn::tensor::Tensor;
use kernels::formula::lerp;
use kernels::fused;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `torch.optim.Adafactor`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub struct Adafactor {
    /// Largest relative step size.
    #[default = 1e-2]
    #[schemars(range(min = 0.0))]
    pub lr: f64,
    /// Exponent of the step in the decay rate of the second moment.
    #[default(-0.8)]
    #[schemars(range(max = 0.0))]
    pub beta2_decay: f64,
    /// PyTorch's `eps[0]`: lower bound of the second moment. Default: f32's epsilon.
    #[default(f64::from(f32::EPSILON))]
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub eps1: f64,
    /// PyTorch's `eps[1]`: smallest root mean square that a parameter is taken to have.
    #[default = 1e-3]
    #[schemars(range(min = 0.0))]
    pub eps2: f64,
    /// Clipping threshold of the update's root mean square.
    #[default = 1.0]
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub d: f64,
    /// Decoupled weight decay.
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// Which parameters get weight decay.
    pub decay: DecayOn,
}

impl Adafactor {
    /// [`update_factors`] and [`factored_direction`] for a flat gradient of `n` matrices. Returns the update and the
    /// new row and column means.
    fn factored_on_device(
        &self,
        grad: Tensor<1>,
        [n, rows, cols]: [usize; 3],
        [take, floor]: [f32; 2],
        [row, col]: [Tensor<1>; 2],
    ) -> (Tensor<1>, [Tensor<1>; 2]) {
        let grad = grad.reshape([n, rows, cols]);
        let square = grad.clone() * grad.clone();
        let row = device::lerp(row.reshape([n, rows, 1]), square.clone().mean_dim(2), take);
        let col = device::lerp(col.reshape([n, 1, cols]), square.mean_dim(1), take);
        let mean = row.clone().mean_dim(1).clamp_min(self.eps1);
        let variance = row.clone() * col.clone() / mean;
        let update = grad / variance.clamp_min(floor).sqrt();
        (update.reshape([n * rows * cols]), [row.reshape([n * rows]), col.reshape([n * cols])])
    }
}

impl UpdateRule for Adafactor {
    fn slots(&self) -> &'static [&'static str] {
        &["row_var", "col_var", "variance"]
    }

    fn slot_shape(&self, slot: usize, shape: &[usize]) -> Vec<usize> {
        let Some(n) = shape.len().checked_sub(2) else {
            return if slot == 2 { shape.to_vec() } else { vec![0] };
        };
        let mut shape = shape.to_vec();
        match slot {
            0 => shape[n + 1] = 1,
            1 => shape[n] = 1,
            _ => return vec![0],
        }
        shape
    }

    fn step<R: RuleTarget>(&self, step: u64, lr: f64, shape: &[usize], on: R) -> R::Updated {
        let take = (step as f64).powf(self.beta2_decay) as f32;
        let rho = lr.min(1.0 / (step as f64).sqrt());
        let count = (shape.iter().product::<usize>().max(1) as f64).sqrt();
        let shrink = (1.0 - lr * self.decay.decay(self.weight_decay, shape)) as f32;
        let floor = (self.eps1 * self.eps1) as f32;
        let host = |Host { scale, param, grad, state }: Host<'_, '_>| {
            let alpha = self.eps2.max(clip::global_norm([&*param]) / count) * rho;
            let [row, col, variance] = slots::<3>(state);
            let mut update = vec![0.0f32; param.len()];
            if let [.., rows, cols] = *shape {
                let matrices = update
                    .chunks_exact_mut((rows * cols).max(1))
                    .zip(grad.chunks_exact((rows * cols).max(1)))
                    .zip(row.chunks_exact_mut(rows.max(1)).zip(col.chunks_exact_mut(cols.max(1))));
                for ((update, grad), (row, col)) in matrices {
                    update_factors(grad, scale, take, row, col);
                    factored_direction(update, grad, scale, row, col, self.eps1, floor);
                }
            } else {
                fused::for_each(&mut update, grad, [variance], |_, g, [v]| {
                    let g = g * scale;
                    let v = lerp(v, g * g, take);
                    (g / v.max(floor).sqrt(), [v])
                });
            }
            let denom = (clip::global_norm([&*update]) / (count * self.d)).max(1.0);
            let size = (alpha / denom) as f32;
            fused::for_each(param, &update, [], |p, u, []| (p * shrink - size * u, []));
        };
        let device = |OnDevice { scale, param, grad, state }: OnDevice<'_>| {
            let alpha = (device::norm(param.clone()) / count).clamp_min(self.eps2) * rho;
            let apply = |p: Tensor<1>, update: Tensor<1>| {
                let denom = (device::norm(update.clone()) / (count * self.d)).clamp_min(1.0);
                p * shrink - update * (alpha / denom)
            };
            if let [matrices @ .., rows, cols] = shape {
                let sizes = [matrices.iter().product(), *rows, *cols];
                device::for_all(param, grad, scale, &mut state[..2], |p, g, factors| {
                    let (update, factors) = self.factored_on_device(g, sizes, [take, floor], factors);
                    (apply(p, update), factors)
                })
            } else {
                device::for_all(param, grad, scale, &mut state[2..], |p, g, [v]| {
                    let v = device::lerp(v, g.clone() * g.clone(), take);
                    (apply(p, g / v.clone().clamp_min(floor).sqrt()), [v])
                })
            }
        };
        on.either(host, device)
    }
}

/// Updates the row and column means of one matrix's squared gradient, with sums in f64.
fn update_factors(grad: &[f32], scale: f32, take: f32, row: &mut [f32], col: &mut [f32]) {
    let mut by_col = vec![0.0f64; col.len()];
    for (g, row) in grad.chunks_exact(col.len()).zip(row.iter_mut()) {
        let mut by_row = 0.0f64;
        for (&g, by_col) in g.iter().zip(&mut by_col) {
            let square = f64::from(g * scale) * f64::from(g * scale);
            by_row += square;
            *by_col += square;
        }
        *row = lerp(*row, (by_row / col.len() as f64) as f32, take);
    }
    for (c, sum) in col.iter_mut().zip(by_col) {
        *c = lerp(*c, (sum / row.len() as f64) as f32, take);
    }
}

/// `grad / sqrt(row x col / mean(row))` of one matrix.
fn factored_direction(
    update: &mut [f32],
    grad: &[f32],
    scale: f32,
    row: &[f32],
    col: &[f32],
    eps1: f64,
    floor: f32,
) {
    let mean = row.iter().map(|&r| f64::from(r)).sum::<f64>() / row.len() as f64;
    let mean = mean.max(eps1) as f32;
    let lines = update.chunks_exact_mut(col.len()).zip(grad.chunks_exact(col.len()));
    for ((update, grad), &r) in lines.zip(row) {
        for ((u, &g), &c) in update.iter_mut().zip(grad).zip(col) {
            *u = g * scale / (r * c / mean).max(floor).sqrt();
        }
    }
}
