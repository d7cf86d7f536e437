//! `reduce-on-plateau`: PyTorch's `ReduceLROnPlateau`. The only schedule that depends on more than the time: what its
//! evaluations have led to is a [`Plateau`], which the run's position keeps.

use super::{Curve, Schedule, ScheduleConfig, Segment, Unit};
use checkpoint::RankBy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use spec::choice;
use std::sync::Arc;

/// A smaller reduction is left out, as in PyTorch.
const EPS: f64 = 1e-8;

/// `ReduceLROnPlateau`: the base rate, multiplied by `factor` when the metric has not improved in more than `patience`
/// evaluations in a row. It lasts for the rest of the run; evaluations during a warm-up, or schedules before it in a
/// chain, do not count.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub struct ReduceOnPlateau {
    /// Metric that has to improve, one of those of `checkpoint.best`.
    pub metric: RankBy,
    /// Factor of the rate.
    #[default = 0.1]
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    factor: f64,
    /// Evaluations in a row without an improvement that leave the rate unchanged; the next one reduces it.
    #[default = 10]
    patience: u64,
    /// An improvement is larger than this.
    #[default = 1e-4]
    #[schemars(range(min = 0.0))]
    threshold: f64,
    /// What `threshold` is measured in.
    threshold_mode: ThresholdMode,
    /// Evaluations after a reduction that count for nothing but the best value.
    cooldown: u64,
    /// Smallest rate.
    #[schemars(range(min = 0.0))]
    min_lr: f64,
}

choice! {
    /// What the threshold of an improvement is measured in.
    ThresholdMode:
    /// A share of the best value.
    Rel = "rel",
    /// The metric itself.
    Abs = "abs",
}

/// What the evaluations of a run have led to; part of its position.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plateau {
    metric: String,
    /// `None` if no value was finite.
    best: Option<f64>,
    /// Evaluations in a row without an improvement.
    bad: u64,
    /// Evaluations left that do not count.
    cooldown: u64,
    /// Reductions of the rate so far.
    reductions: u64,
}

impl Curve for ReduceOnPlateau {
    fn lr(&self, base: f64, _: u64, _: u64) -> f64 {
        base
    }

    fn on_plateau(&self) -> Option<&ReduceOnPlateau> {
        Some(self)
    }
}

impl ScheduleConfig for ReduceOnPlateau {}

impl Segment {
    /// Why `reduce-on-plateau` can't have these keys; `None` of any other schedule.
    pub(super) fn against_plateau(&self) -> Option<(&'static str, &'static str)> {
        self.curve.on_plateau()?;
        match (self.unit, self.length) {
            (Unit::Step, _) => Some(("unit", "the rate changes after evaluations, at the ends of epochs")),
            (_, Some(_)) => Some(("name", "lasts for the rest of the run: it has no `epochs` or `steps`")),
            _ => None,
        }
    }
}

impl ReduceOnPlateau {
    /// The state after an evaluation with this result. `bases` are the base rates of the optimizer and its groups: as long as
    /// one of them falls, the others stay at their ends.
    pub fn after(&self, before: Option<Plateau>, value: f64, bases: &[f64]) -> Plateau {
        let before = before.unwrap_or_default();
        let mut now = match before.metric == self.metric.name() {
            true => before,
            // The wait begins anew; the rate stays.
            false => Plateau {
                metric: self.metric.name().to_owned(),
                reductions: before.reductions,
                ..Plateau::default()
            },
        };
        if value.is_finite() && now.best.is_none_or(|best| self.improves(value, best)) {
            (now.best, now.bad) = (Some(value), 0);
        } else {
            now.bad += 1;
        }
        if now.cooldown > 0 {
            (now.cooldown, now.bad) = (now.cooldown - 1, 0);
        }
        if now.bad > self.patience {
            (now.cooldown, now.bad) = (self.cooldown, 0);
            let falls = |base: &f64| self.reduced(self.rate(*base, now.reductions)).is_some();
            now.reductions += u64::from(bases.iter().any(falls));
        }
        now
    }

    fn improves(&self, value: f64, best: f64) -> bool {
        match (self.metric.prefers_larger(), self.threshold_mode) {
            (false, ThresholdMode::Rel) => value < best * (1.0 - self.threshold),
            (false, ThresholdMode::Abs) => value < best - self.threshold,
            (true, ThresholdMode::Rel) => value > best * (1.0 + self.threshold),
            (true, ThresholdMode::Abs) => value > best + self.threshold,
        }
    }

    fn rate(&self, base: f64, reductions: u64) -> f64 {
        (0..reductions).try_fold(base, |lr, _| self.reduced(lr).ok_or(lr)).unwrap_or_else(|lr| lr)
    }

    /// `None` if the rate stays unchanged.
    fn reduced(&self, lr: f64) -> Option<f64> {
        let reduced = (lr * self.factor).max(self.min_lr);
        (lr - reduced > EPS).then_some(reduced)
    }
}

impl Schedule {
    /// The rule of `reduce-on-plateau`, if that is how this schedule ends.
    pub fn on_plateau(&self) -> Option<&ReduceOnPlateau> {
        self.segments.last()?.curve.on_plateau()
    }

    /// Completes the metric of `reduce-on-plateau`, if that is how this schedule ends.
    pub fn rank_by(&mut self, metric: RankBy) {
        let rule = self.on_plateau().map(|rule| ReduceOnPlateau { metric, ..rule.clone() });
        if let (Some(rule), Some(last)) = (rule, self.segments.last_mut()) {
            last.curve = Arc::new(rule);
        }
    }

    /// Whether the last of `steps` steps was one of the schedule's last segment.
    pub fn in_last_segment(&self, steps: u64, steps_per_epoch: u64) -> bool {
        let before = self.segments.iter().filter_map(|s| s.length).map(|l| l.steps(steps_per_epoch.max(1)));
        steps > before.fold(0, u64::saturating_add)
    }

    /// The base rate after the reductions so far.
    pub fn base_lr(&self, lr: f64, plateau: Option<&Plateau>) -> f64 {
        let reductions = plateau.map_or(0, |plateau| plateau.reductions);
        self.on_plateau().map_or(lr, |rule| rule.rate(lr, reductions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optim::testing::{self, read, scheduler};

    fn schedule(keys: &str) -> Schedule {
        testing::schedule(&format!("[scheduler]\nname = \"reduce-on-plateau\"\n{keys}"))
    }

    const NAN: f64 = f64::NAN;
    const LOSS: [f64; 12] = [1.0, 0.9, 0.9, 0.95, 0.8999, 0.91, 0.5, 0.5, 0.4, NAN, 0.39999, 0.3];
    const ACCURACY: [f64; 12] = [0.1, 0.2, 0.2, 0.201, 0.15, 0.25, 0.25, 0.26, 0.26, NAN, 0.35, 0.35];
    const R2: [f64; 12] = [-5.0, -1.0, -1.0, -0.9995, -0.5, -0.5, -0.5, 0.1, 0.2, 0.2, 0.2, 0.2];

    /// Rates after each evaluation, of PyTorch 2.15 (base rate 0.1; `mode` is `min` or `max` as the metric demands).
    #[rustfmt::skip]
    const GOLDEN: [(&str, [f64; 12], [f64; 12]); 7] = [
        ("factor = 0.5\npatience = 1", LOSS,
         [0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.025, 0.025]),
        ("patience = 1\ncooldown = 2", LOSS,
         [0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.001, 0.001]),
        ("factor = 0.5\npatience = 0\nthreshold = 0.05\nthreshold_mode = \"abs\"\nmin_lr = 0.03", LOSS,
         [0.1, 0.1, 0.05, 0.03, 0.03, 0.03, 0.03, 0.03, 0.03, 0.03, 0.03, 0.03]),
        ("factor = 0.001\npatience = 0", LOSS,
         [0.1, 0.1, 1e-4, 1e-7, 1e-7, 1e-10, 1e-10, 1e-10, 1e-10, 1e-10, 1e-10, 1e-10]),
        ("metric = \"val.accuracy\"\nfactor = 0.5\npatience = 1\nthreshold = 0.01", ACCURACY,
         [0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025]),
        ("metric = \"val.accuracy\"\nfactor = 0.2\npatience = 0\nthreshold = 0.05\nthreshold_mode = \"abs\"\ncooldown = 1", ACCURACY,
         [0.1, 0.1, 0.02, 0.02, 0.004, 0.004, 0.0008, 0.0008, 0.00016, 0.00016, 0.00016, 3.2e-5]),
        ("metric = \"val.r2\"\nfactor = 0.5\npatience = 1\nthreshold = 0.001", R2,
         [0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05]),
    ];

    #[test]
    fn rates_are_those_of_pytorch() {
        for (keys, values, expected) in GOLDEN {
            let schedule = schedule(keys);
            let (rule, mut plateau) = (schedule.on_plateau().unwrap(), None);
            for (i, (value, expected)) in values.into_iter().zip(expected).enumerate() {
                plateau = Some(rule.after(plateau.take(), value, &[0.1]));
                // A checkpoint keeps it.
                let saved = serde_json::to_string(&plateau).unwrap();
                assert_eq!(serde_json::from_str::<Option<Plateau>>(&saved).unwrap(), plateau);
                let base = schedule.base_lr(0.1, plateau.as_ref());
                let got = schedule.lr(base, i as u64 * 8, 8, 96);
                assert!((got / expected - 1.0).abs() < 1e-9, "{keys}\n{got} at {i}, expected {expected}");
            }
        }
    }

    /// As PyTorch's, which reduces each parameter group by itself.
    #[test]
    fn a_groups_rate_falls_on_when_the_base_rate_is_at_its_end() {
        let schedule = schedule("factor = 0.1\npatience = 0\nmin_lr = 1e-4");
        let (rule, mut plateau) = (schedule.on_plateau().unwrap(), None);
        for expected in [[1e-3, 1e-2], [1e-4, 1e-3], [1e-4, 1e-4], [1e-4, 1e-4]] {
            plateau = Some(rule.after(plateau.take(), 1.0, &[1e-3, 1e-2]));
            let rates = [1e-3, 1e-2].map(|base| schedule.base_lr(base, plateau.as_ref()));
            assert!(
                rates.iter().zip(expected).all(|(a, b): (&f64, f64)| (a / b - 1.0).abs() < 1e-9),
                "{rates:?}"
            );
        }
        assert_eq!(plateau.unwrap().reductions, 2);
    }

    #[test]
    fn the_rate_stays_when_the_metric_changes_and_the_wait_begins_anew() {
        let (losses, errors) = (schedule("patience = 0"), schedule("patience = 0\nmetric = \"train.loss\""));
        let (losses, errors) = (losses.on_plateau().unwrap(), errors.on_plateau().unwrap());
        let once = losses.after(Some(losses.after(None, 1.0, &[0.1])), 1.0, &[0.1]);
        let other = errors.after(Some(once.clone()), 5.0, &[0.1]);
        assert_eq!((once.reductions, other.reductions, other.best, other.bad), (1, 1, Some(5.0), 0));
    }

    #[test]
    fn it_begins_after_a_warm_up_or_at_the_end_of_a_chain() {
        let warm = schedule("warmup_steps = 12");
        assert!(!warm.in_last_segment(12, 8) && warm.in_last_segment(13, 8));
        assert!(warm.lr(0.1, 3, 8, 80) < 0.1 && warm.lr(0.1, 12, 8, 80) == 0.1);
        let plateau = "[[scheduler]]\nname = \"reduce-on-plateau\"";
        let chain = format!("[[scheduler]]\nname = \"constant\"\nepochs = 3\n{plateau}");
        let (chain, problems) = read(&chain, scheduler);
        assert!(problems.is_empty() && chain.on_plateau().is_some());
        assert!(!chain.in_last_segment(24, 8) && chain.in_last_segment(25, 8));
        for (text, part) in [
            (format!("{plateau}\nepochs = 3\n[[scheduler]]\nname = \"constant\""), "rest of the run"),
            (format!("{plateau}\n[[scheduler]]\nname = \"constant\""), "unreachable"),
            (format!("{plateau}\nunit = \"step\""), "at the ends of epochs"),
            (format!("{plateau}\nfactor = 1.0"), "below 1"),
        ] {
            let (_, problems) = read(&text, scheduler);
            assert!(problems.contains(part), "{text}\n{part} is missing in:\n{problems}");
        }
        assert!(schedule("unit = \"epoch\"").on_plateau().is_some());
    }
}
