//! Learning-rate schedules: pure functions from the number of optimizer steps done to the learning rate.
//!
//! A [`Schedule`] is a chain of [`Segment`]s, each of which starts from the base learning rate, as in PyTorch's
//! `SequentialLR`. Every schedule has a closed form, so a resumed run needs no scheduler state, and the rate of any
//! step takes O(1). Only `reduce-on-plateau` has a state, which lowers the base rate.
//!
//! A segment counts its time `t` in epochs (as PyTorch users do with one `scheduler.step()` per epoch)
//! or in optimizer steps; one that counts epochs changes the rate only at epoch boundaries of the run.

mod configure;
mod constant;
mod cosine;
mod cosine_restarts;
mod exponential;
mod inverse_sqrt;
mod linear;
mod multistep;
mod noam;
mod one_cycle;
mod plateau;
mod polynomial;
mod step;
mod warmup;

pub use configure::{ScheduleConfig, ScheduleKind};
pub use plateau::{Plateau, ReduceOnPlateau};

use super::values;
use serde::Serialize;
use serde_json::{Map, Value};
use spec::choice;
use std::f64::consts::PI;
use std::fmt;
use std::sync::Arc;

/// A schedule with its parameters, in closed form.
pub trait Curve: fmt::Debug + Send + Sync {
    /// The rate at time `t` of a segment of length `span`, both in the segment's unit. `base` is the base rate.
    fn lr(&self, base: f64, t: u64, span: u64) -> f64;

    /// The rule that lowers the base rate, if there is one.
    #[doc(hidden)]
    fn on_plateau(&self) -> Option<&ReduceOnPlateau> {
        None
    }
}

choice! {
    /// How often the rate changes, and the unit of the times.
    Unit:
    /// Passes over the training data.
    Epoch = "epoch",
    /// Optimizer steps.
    Step = "step",
}

/// The length of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Length {
    /// Passes over the training data.
    Epochs(u64),
    /// Optimizer steps.
    Steps(u64),
}

impl Length {
    fn steps(self, steps_per_epoch: u64) -> u64 {
        match self {
            Length::Epochs(n) => n.saturating_mul(steps_per_epoch),
            Length::Steps(n) => n,
        }
    }
}

/// One schedule for a part of the run.
#[derive(Clone, Debug, Serialize)]
pub struct Segment {
    name: String,
    #[serde(flatten)]
    config: Map<String, Value>,
    unit: Unit,
    /// `None` for the last segment: the rest of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<Length>,
    #[serde(skip)]
    curve: Arc<dyn Curve>,
}

impl Segment {
    fn new<T: ScheduleConfig>(name: &str, curve: T, unit: Unit, length: Option<Length>) -> Self {
        Self { name: name.to_owned(), config: values(&curve), unit, length, curve: Arc::new(curve) }
    }
}

impl PartialEq for Segment {
    fn eq(&self, other: &Self) -> bool {
        let all = |of: &Self| (of.name.clone(), of.config.clone(), of.unit, of.length);
        all(self) == all(other)
    }
}

/// The schedules of ddp-run under their names in specs, in the order of messages.
pub fn standard_kinds() -> [(&'static str, ScheduleKind); 13] {
    [
        ("constant", Segment::read::<constant::Constant>),
        ("step", Segment::read::<step::Step>),
        ("multistep", Segment::read::<multistep::MultiStep>),
        ("exponential", Segment::read::<exponential::Exponential>),
        ("cosine", Segment::read::<cosine::Cosine>),
        ("cosine-restarts", Segment::read::<cosine_restarts::CosineRestarts>),
        ("linear", Segment::read::<linear::Linear>),
        ("polynomial", Segment::read::<polynomial::Polynomial>),
        ("warmup", Segment::read::<warmup::Warmup>),
        ("one-cycle", Segment::read::<one_cycle::OneCycle>),
        ("noam", Segment::read::<noam::Noam>),
        ("inverse-sqrt", Segment::read::<inverse_sqrt::InverseSqrt>),
        ("reduce-on-plateau", Segment::read::<ReduceOnPlateau>),
    ]
}

/// The resolved `[scheduler]` or `[[scheduler]]`, read by [`Schedule::configure`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Schedule {
    /// Not empty. All but the last have a length.
    segments: Vec<Segment>,
}

impl Schedule {
    /// The base learning rate throughout the run.
    pub fn constant() -> Self {
        Self { segments: vec![Segment::new("constant", constant::Constant {}, Unit::Epoch, None)] }
    }

    /// A chain. `None` if it is empty or a segment other than the last has no length.
    pub fn chain(segments: Vec<Segment>) -> Option<Self> {
        let (_, before) = segments.split_last()?;
        before.iter().all(|s| s.length.is_some()).then_some(Self { segments })
    }

    /// The name of a schedule of which the rate may depend on the length of the run; `None` if the beginning of a longer run has the
    /// same rates. Only the last segment's length is that of the rest of the run. Of `reduce-on-plateau` it counts what is measured,
    /// which includes the end of a run.
    pub fn depends_on_length(&self) -> Option<&str> {
        const FREE: [&str; 7] =
            ["constant", "step", "multistep", "exponential", "cosine-restarts", "noam", "inverse-sqrt"];
        let last = self.segments.last()?;
        (!FREE.contains(&last.name.as_str())).then_some(last.name.as_str())
    }

    /// The schedules one after the other, by name, with the optimizer steps that each lasts in a run of `total` steps, as far as those of an
    /// epoch and of the run are known.
    pub fn lengths(&self, steps_per_epoch: Option<u64>, total: Option<u64>) -> Vec<(&str, Option<u64>)> {
        let mut left = total;
        let length = |segment: &Segment, left: Option<u64>| match segment.length {
            Some(Length::Steps(n)) => Some(n),
            Some(Length::Epochs(n)) => steps_per_epoch.map(|each| n.saturating_mul(each)),
            None => left,
        };
        let of = |segment| {
            let steps = length(segment, left).map(|steps| left.map_or(steps, |left| steps.min(left)));
            left = left.zip(steps).map(|(left, steps)| left - steps);
            (segment.name.as_str(), steps)
        };
        self.segments.iter().map(of).collect()
    }

    /// The learning rate of the next optimizer step after `step` steps (0 for the first), in a run of `total_steps`.
    ///
    /// Beyond the end of the run, each formula continues.
    pub fn lr(&self, base_lr: f64, step: u64, steps_per_epoch: u64, total_steps: u64) -> f64 {
        let per_epoch = steps_per_epoch.max(1);
        let mut start = 0u64;
        let last = self.segments.len() - 1;
        for (i, segment) in self.segments.iter().enumerate() {
            let end = match segment.length {
                Some(length) => start.saturating_add(length.steps(per_epoch)),
                None => total_steps.max(start),
            };
            if step < end || i == last {
                let (t, span) = match segment.unit {
                    Unit::Step => (step - start, end - start),
                    Unit::Epoch => (step / per_epoch - start / per_epoch, {
                        end.div_ceil(per_epoch) - start / per_epoch
                    }),
                };
                return segment.curve.lr(base_lr, t, span);
            }
            start = end;
        }
        base_lr
    }
}

/// A time that defaults to the segment's length.
fn whole(time: Option<u64>, span: u64) -> u64 {
    time.unwrap_or(span).max(1)
}

/// From `base` at 0 to `end` at 1 along half a cosine; periodic.
fn cosine(base: f64, end: f64, at: f64) -> f64 {
    end + (base - end) * (1.0 + (PI * at).cos()) / 2.0
}

#[cfg(test)]
mod tests;
