//! Reads `[scheduler]` or `[[scheduler]]`: a schedule's own keys and the keys of all schedules.

use super::warmup::{WARMUP_START, Warmup};
use super::{Curve, Length, Schedule, Segment, Unit};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use spec::Fields;

/// A schedule that declares the keys of its table as its fields.
pub trait ScheduleConfig: Curve + Serialize + DeserializeOwned + JsonSchema + Default + 'static {
    /// Its default unit: epochs where PyTorch users call `scheduler.step()` once per epoch.
    const UNIT: Unit = Unit::Epoch;
    /// Whether it may follow a linear warm-up: not if it is or contains one.
    const WARMS_UP: bool = true;

    /// Reports keys that exclude each other, and resolves defaults that depend on other keys.
    #[doc(hidden)]
    fn settle(&mut self, _fields: &mut Fields<'_>) {}
}

/// Reads the `[scheduler]` table of one schedule: [`Segment::read`].
pub type ScheduleKind = fn(&str, &mut Fields<'_>) -> Vec<Segment>;

/// The unit of a segment's times.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Time {
    /// How often the rate changes, and the unit of the times below. Default: `step` for `warmup`, `one-cycle`, `noam` and
    /// `inverse-sqrt`, else `epoch`.
    unit: Option<Unit>,
}

/// A linear warm-up before the schedule.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("x-section" = "Warm-up"))]
struct WarmupBefore {
    /// Length of the warm-up, in epochs; not with `warmup_steps`.
    #[schemars(range(min = 1))]
    warmup_epochs: Option<u64>,
    /// Length of the warm-up, in optimizer steps; not with `warmup_epochs`.
    #[schemars(range(min = 1))]
    warmup_steps: Option<u64>,
    /// Factor of the rate at the start of the warm-up; only with a length. Default: 0.01.
    #[schemars(range(min = 0.0, max = 1.0))]
    warmup_start_factor: Option<f64>,
}

/// The length of a segment in a chain. Default: the rest of the run.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Lengths {
    /// Length in a chain, in epochs; not with `steps`. Default: the rest of the run.
    #[schemars(range(min = 1))]
    epochs: Option<u64>,
    /// Length in a chain, in optimizer steps; not with `epochs`. Default: the rest of the run.
    #[schemars(range(min = 1))]
    steps: Option<u64>,
}

impl Schedule {
    /// Reads the key `scheduler` of the root table, given all schedules by name; constant if the key is absent.
    /// Problems are added to `fields`.
    pub fn configure<'k>(
        root: &mut Fields<'_>,
        kinds: impl Iterator<Item = (&'k str, ScheduleKind)>,
    ) -> Schedule {
        let kinds: Vec<(&str, ScheduleKind)> = kinds.collect();
        let mut segments: Vec<Segment> = Vec::new();
        let mut open_ended = None;
        root.tables("scheduler", &mut |fields, index| {
            if let Some(before) = open_ended.take() {
                let message = format!(
                    "unreachable: scheduler {before} before it has no `epochs` or `steps`, so it lasts for the rest of the run"
                );
                fields.problem("name", message);
            }
            if let Some((name, read)) = fields.kind(kinds.iter().copied()) {
                segments.extend(read(name, fields));
            }
            if segments.last().is_some_and(|s| s.length.is_none()) {
                open_ended = Some(index);
            }
        });
        Schedule::chain(segments).unwrap_or_else(Schedule::constant)
    }
}

impl Segment {
    /// Reads one table: the segment of a `T`, after a warm-up if the table asks for one.
    pub fn read<T: ScheduleConfig>(name: &str, fields: &mut Fields<'_>) -> Vec<Segment> {
        let mut curve: T = fields.config();
        curve.settle(fields);
        let unit = fields.config::<Time>().unit.unwrap_or(T::UNIT);
        if !fields.has("unit") {
            fields.note_resolved("unit", unit.name());
        }
        let mut segments = Vec::new();
        if T::WARMS_UP {
            segments.extend(warmup_before(fields));
        }
        let Lengths { epochs, steps } = fields.config();
        let length = one_length(fields, ("epochs", epochs), ("steps", steps));
        let segment = Segment::new(name, curve, unit, length);
        if let Some((key, why)) = segment.against_plateau() {
            fields.problem(key, why);
        }
        segments.push(segment);
        segments
    }
}

fn warmup_before(fields: &mut Fields<'_>) -> Option<Segment> {
    let WarmupBefore { warmup_epochs, warmup_steps, warmup_start_factor } = fields.config();
    let length = one_length(fields, ("warmup_epochs", warmup_epochs), ("warmup_steps", warmup_steps));
    if length.is_none() {
        if warmup_start_factor.is_some() {
            fields.problem("warmup_start_factor", "has no effect without `warmup_steps` or `warmup_epochs`");
        }
        return None;
    }
    if !fields.has("warmup_start_factor") {
        fields.note_resolved("warmup_start_factor", WARMUP_START);
    }
    let start_factor = warmup_start_factor.unwrap_or(WARMUP_START);
    Some(Segment::new("warmup", Warmup { start_factor }, Unit::Step, length))
}

type GivenKey = (&'static str, Option<u64>);

fn one_length(fields: &mut Fields<'_>, epochs: GivenKey, steps: GivenKey) -> Option<Length> {
    if epochs.1.is_some() && steps.1.is_some() {
        fields.problem(steps.0, format!("give `{}` or `{}`, not both", epochs.0, steps.0));
    }
    epochs.1.map(Length::Epochs).or(steps.1.map(Length::Steps))
}
