//! `[ema]`: when and how far the average of the weights follows them.

use schemars::JsonSchema;
use serde::Deserialize;
use spec::Fields;

/// `[ema]`
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EmaConfig {
    /// The share of itself that the average keeps at an update; the rest comes from the weights. Without it there is no
    /// average.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    decay: Option<f64>,
    /// Optimizer steps between updates; the first step is one. Default: 1.
    #[schemars(range(min = 1))]
    every: Option<u64>,
    /// The decay of update `n` is at most `1 - n^-warmup_power`, so that the average soon forgets the first weights: timm's
    /// `use_warmup`, with 2/3 for long runs and 3/4 for shorter ones. Default: no warm-up.
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
    warmup_power: Option<f64>,
}

/// The rule of an exponential moving average of the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ema {
    decay: f64,
    every: u64,
    warmup_power: Option<f64>,
}

impl Ema {
    /// Reads `[ema]`; `None` without `decay`.
    pub fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let EmaConfig { decay, every, warmup_power } = fields.config();
        let Some(decay) = decay else {
            if !fields.has("decay") {
                let why = "without `decay`, which averages the weights";
                fields.misplaced(&["every", "warmup_power"], why);
            }
            return None;
        };
        Some(Self { decay, every: fields.or_default("every", every, 1), warmup_power })
    }

    /// Whether the average is updated after this optimizer step, counted from 1.
    pub(super) fn is_due(&self, step: u64) -> bool {
        step.wrapping_sub(1).is_multiple_of(self.every)
    }

    /// The share of the weights in update `n`, counted from 1; the first one copies them.
    pub(super) fn share(&self, n: u64) -> f32 {
        let most = match (n, self.warmup_power) {
            (0 | 1, _) => 0.0,
            (n, Some(power)) => 1.0 - (n as f64).powf(-power),
            (_, None) => 1.0,
        };
        (1.0 - self.decay.min(most)) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optim::{average, average_on_device};
    use burn::tensor::{Device, Tensor};

    /// `AveragedModel(multi_avg_fn=get_ema_multi_avg_fn(decay))` of PyTorch 2.15, and timm's `ModelEmaV3` with
    /// `use_warmup=True, warmup_power=2/3`: the average of the weights below after each update.
    #[rustfmt::skip]
    const GOLDEN: [(f64, Option<f64>, [[f32; 3]; 6]); 4] = [
        (0.9, None, [[0.1, 1.7, 3.0], [0.11, 1.445, 2.975], [0.129, 1.3571668, 2.8774998],
                     [0.1561, 1.1789501, 2.6647499], [0.190_49, 1.0950551, 2.2982748], [0.231441, 0.95721626, 1.7434473]]),
        (0.3, None, [[0.1, 1.7, 3.0], [0.17, -0.08499993, 2.825], [0.261, 0.37116668, 2.2475],
                     [0.3583, -0.18615, 1.19925], [0.45749, 0.182155, -0.34022498], [0.55724704, -0.14368683, -2.3770676]]),
        (0.0, None, [[0.1, 1.7, 3.0], [0.2, -0.85, 2.75], [0.3, 0.56666666, 2.0],
                     [0.4, -0.425, 0.75], [0.5, 0.34, -1.0], [0.6, -0.28333333, -3.25]]),
        (0.65, Some(2.0 / 3.0),
                    [[0.1, 1.7, 3.0], [0.16299605, 0.093600675, 2.8425097], [0.22886069, 0.32102707, 2.4374733],
                     [0.29677737, 0.024966018, 1.7677991], [0.3679053, 0.1352279, 0.79906946], [0.44913843, -0.011268521, -0.6181048]]),
    ];

    fn weights(n: u64) -> [f32; 3] {
        let k = n as f64 - 1.0;
        let sign = if n % 2 == 1 { 1.0 } else { -1.0 };
        [0.1 * n as f64, sign * 1.7 / n as f64, 3.0 - k * k * 0.25].map(|v| v as f32)
    }

    #[test]
    fn averages_are_those_of_pytorch_and_timm_in_host_memory_and_on_a_device() {
        for (decay, warmup_power, expected) in GOLDEN {
            let ema = Ema { decay, every: 1, warmup_power };
            let mut host = [9.0f32; 3];
            let mut tensor = Tensor::<1>::from_data([9.0f32; 3], &Device::flex());
            for (n, expected) in (1..).zip(expected) {
                let now = weights(n);
                average(&mut host, &now, ema.share(n));
                tensor = average_on_device(tensor, Tensor::from_data(now, &Device::flex()), ema.share(n));
                for (got, expected) in host.iter().zip(expected) {
                    assert!((got - expected).abs() <= 3e-7, "{ema:?}, update {n}: {got}, not {expected}");
                }
                assert_eq!(tensor.clone().into_data().try_into_vec::<f32>().unwrap(), host, "{ema:?}, {n}");
            }
        }
    }

    #[test]
    fn the_first_of_every_few_steps_is_due() {
        let due = |every| {
            let ema = Ema { decay: 0.9, every, warmup_power: None };
            (1..=9).filter(|step| ema.is_due(*step)).collect::<Vec<u64>>()
        };
        assert_eq!((due(1), due(4)), ((1..=9).collect(), vec![1, 5, 9]));
    }
}
