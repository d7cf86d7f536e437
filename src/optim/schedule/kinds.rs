//! The closed form of each kind of schedule.

use serde::Serialize;
use std::f64::consts::PI;

/// How one-cycle moves between its rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Anneal {
    Cos,
    Linear,
}

/// A kind and its parameters. Times are in the segment's unit; `None` for a time stands for the whole segment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "name", rename_all = "kebab-case")]
pub enum Kind {
    /// The base rate.
    Constant,
    /// `StepLR`: times `gamma` every `step_size`.
    Step { step_size: u64, gamma: f64 },
    /// `MultiStepLR`: times `gamma` at each milestone.
    #[serde(rename = "multistep")]
    MultiStep { milestones: Vec<u64>, gamma: f64 },
    /// `ExponentialLR`: `gamma^t`.
    Exponential { gamma: f64 },
    /// `CosineAnnealingLR`: half a cosine from the base rate to `eta_min` over `t_max`, and back up if it goes on.
    Cosine { t_max: Option<u64>, eta_min: f64 },
    /// `CosineAnnealingWarmRestarts`: cosines of `t_0`, then each `t_mult` times as long as the one before.
    CosineRestarts { t_0: u64, t_mult: u64, eta_min: f64 },
    /// `LinearLR`: the factor goes from `start_factor` to `end_factor` over `total`, and stays.
    Linear { start_factor: f64, end_factor: f64, total: Option<u64> },
    /// A linear warm-up: `LinearLR` with `end_factor` 1 over the whole segment.
    Warmup { start_factor: f64 },
    /// `PolynomialLR`: `(1 - t / total)^power`.
    Polynomial { power: f64, total: Option<u64> },
    /// `OneCycleLR` with two phases; momentum is left alone. `max_lr` is the base rate unless given.
    OneCycle {
        max_lr: Option<f64>,
        pct_start: f64,
        anneal: Anneal,
        div_factor: f64,
        final_div_factor: f64,
        total: Option<u64>,
    },
    /// "Attention is all you need", 5.3: `base x d_model^-0.5 x min(n^-0.5, n x warmup^-1.5)` with `n = t + 1`.
    Noam { d_model: u64, warmup: u64 },
    /// A linear warm-up to the base rate, then `base x sqrt(warmup / n)`, with `n = t + 1` (fairseq).
    InverseSqrt { warmup: u64 },
}

impl Kind {
    /// The rate at time `t` of a segment that spans `span`.
    pub(super) fn lr(&self, base: f64, t: u64, span: u64) -> f64 {
        let whole = |total: Option<u64>| total.unwrap_or(span).max(1);
        let time = t as f64;
        match *self {
            Kind::Constant => base,
            Kind::Step { step_size, gamma } => base * gamma.powf((t / step_size.max(1)) as f64),
            Kind::MultiStep { ref milestones, gamma } => {
                base * gamma.powf(milestones.iter().filter(|m| **m <= t).count() as f64)
            }
            Kind::Exponential { gamma } => base * gamma.powf(time),
            Kind::Cosine { t_max, eta_min } => cosine(base, eta_min, time / whole(t_max) as f64),
            Kind::CosineRestarts { t_0, t_mult, eta_min } => {
                let (t, length) = within_cycle(t, t_0.max(1), t_mult.max(1));
                cosine(base, eta_min, t as f64 / length as f64)
            }
            Kind::Linear { start_factor, end_factor, total } => {
                let total = whole(total);
                base * (start_factor + (end_factor - start_factor) * t.min(total) as f64 / total as f64)
            }
            Kind::Warmup { start_factor } => {
                base * (start_factor + (1.0 - start_factor) * (time / span.max(1) as f64).min(1.0))
            }
            Kind::Polynomial { power, total } => {
                let total = whole(total);
                base * (1.0 - t.min(total) as f64 / total as f64).powf(power)
            }
            Kind::OneCycle { max_lr, pct_start, anneal, div_factor, final_div_factor, total } => {
                let max = max_lr.unwrap_or(base);
                let initial = max / div_factor;
                let rates = [initial, max, initial / final_div_factor];
                one_cycle(rates, pct_start, anneal, t, whole(total))
            }
            Kind::Noam { d_model, warmup } => {
                let (n, warmup) = (time + 1.0, warmup.max(1) as f64);
                base / (d_model.max(1) as f64).sqrt() * (1.0 / n.sqrt()).min(n * warmup.powf(-1.5))
            }
            Kind::InverseSqrt { warmup } => {
                let (n, warmup) = (time + 1.0, warmup.max(1) as f64);
                base * (n / warmup).min((warmup / n).sqrt())
            }
        }
    }
}

/// From `base` at 0 to `end` at 1 along half a cosine; periodic.
fn cosine(base: f64, end: f64, at: f64) -> f64 {
    end + (base - end) * (1.0 + (PI * at).cos()) / 2.0
}

/// Time within the current cycle, and the cycle's length.
fn within_cycle(t: u64, first: u64, mult: u64) -> (u64, u64) {
    if mult == 1 {
        return (t % first, first);
    }
    // Cycles grow geometrically: at most 64 turns, whatever `t`.
    let (mut t, mut length) = (t, first);
    while t >= length {
        t -= length;
        length = length.saturating_mul(mult);
    }
    (t, length)
}

/// Up from the first rate to the second by step `pct_start x total - 1`, down to the third by step `total - 1`.
fn one_cycle([initial, max, min]: [f64; 3], pct_start: f64, anneal: Anneal, t: u64, total: u64) -> f64 {
    let (peak, end) = (pct_start * total as f64 - 1.0, total as f64 - 1.0);
    let t = (t as f64).min(end);
    let (from, to, at) =
        if t <= peak { (initial, max, t / peak) } else { (max, min, (t - peak) / (end - peak)) };
    // A phase without length (a cycle of one step, or its peak at step 0) is where it ends.
    let at = if at.is_finite() { at } else { 1.0 };
    match anneal {
        Anneal::Cos => cosine(from, to, at),
        Anneal::Linear => from + (to - from) * at,
    }
}
