//! Reads `[scheduler]` or `[[scheduler]]`.
//!
//! Keys of every kind: `name`; `unit = "epoch" | "step"`; `epochs` or `steps`, its length in a chain; and
//! `warmup_epochs` or `warmup_steps` with `warmup_start_factor`, a linear warm-up put before it.

use super::{Anneal, Kind, Length, Schedule, Segment, Unit};
use crate::spec::Fields;
use std::ops::Bound;

type Read = fn(&mut Fields<'_>) -> Kind;

/// Name, reader, default unit. Per epoch where PyTorch users call `scheduler.step()` once an epoch.
const KINDS: [(&str, (Read, &str)); 12] = [
    ("constant", (read_constant, "epoch")),
    ("step", (read_step, "epoch")),
    ("multistep", (read_multistep, "epoch")),
    ("exponential", (read_exponential, "epoch")),
    ("cosine", (read_cosine, "epoch")),
    ("cosine-restarts", (read_cosine_restarts, "epoch")),
    ("linear", (read_linear, "epoch")),
    ("polynomial", (read_polynomial, "epoch")),
    ("warmup", (read_warmup, "step")),
    ("one-cycle", (read_one_cycle, "step")),
    ("noam", (read_noam, "step")),
    ("inverse-sqrt", (read_inverse_sqrt, "step")),
];

/// torchvision's reference scripts use it; PyTorch's own default for `LinearLR`, a third, is no warm-up.
const WARMUP_START: f64 = 0.01;

/// Gammas and factors: above zero.
const POSITIVE: (Bound<f64>, Bound<f64>) = (Bound::Excluded(0.0), Bound::Unbounded);

impl Schedule {
    /// The names that `scheduler.name` accepts.
    pub fn names() -> Vec<&'static str> {
        KINDS.iter().map(|(name, _)| *name).collect()
    }

    /// Reads key `scheduler` of the root table; constant where it is absent. Problems go into the fields.
    pub fn configure(root: &mut Fields<'_>) -> Schedule {
        let mut segments: Vec<Segment> = Vec::new();
        let mut open_ended = None;
        root.tables("scheduler", &mut |fields, index| {
            if let Some(before) = open_ended.take() {
                let message = format!(
                    "unreachable: scheduler {before} before it has no `epochs` or `steps`, so it lasts for the rest of the run"
                );
                fields.problem("name", message);
            }
            segments.extend(read_segment(fields));
            if segments.last().is_some_and(|s| s.length.is_none()) {
                open_ended = Some(index);
            }
        });
        Schedule::chain(segments).unwrap_or_else(Schedule::constant)
    }
}

/// One table: its segment, and the warm-up before it if it asks for one.
fn read_segment(fields: &mut Fields<'_>) -> Vec<Segment> {
    let Some((read, default_unit)) = fields.opt_choice("name", &KINDS) else {
        if !fields.has("name") {
            fields.req_str("name");
        }
        fields.ignore_rest();
        return Vec::new();
    };
    let kind = read(fields);
    let unit = fields.choice("unit", &[("epoch", Unit::Epoch), ("step", Unit::Step)], default_unit);
    let mut segments = Vec::new();
    // These three have `warmup_steps` as a parameter of their own, or are a warm-up.
    if !matches!(kind, Kind::Noam { .. } | Kind::InverseSqrt { .. } | Kind::Warmup { .. }) {
        segments.extend(read_warmup_before(fields));
    }
    let length = one_length(fields, "epochs", "steps");
    if matches!(kind, Kind::Warmup { .. }) && length.is_none() {
        fields.problem("name", "a warm-up needs its length: `steps` or `epochs`");
    }
    segments.push(Segment { kind, unit, length });
    segments
}

fn read_warmup_before(fields: &mut Fields<'_>) -> Option<Segment> {
    let length = one_length(fields, "warmup_epochs", "warmup_steps");
    let start_factor = match length {
        Some(_) => fields.f64("warmup_start_factor", 0.0..=1.0, WARMUP_START),
        None => {
            if fields.opt_f64("warmup_start_factor", 0.0..=1.0).is_some() {
                fields.problem(
                    "warmup_start_factor",
                    "has no effect without `warmup_steps` or `warmup_epochs`",
                );
            }
            return None;
        }
    };
    Some(Segment { kind: Kind::Warmup { start_factor }, unit: Unit::Step, length })
}

fn one_length(fields: &mut Fields<'_>, epochs: &'static str, steps: &'static str) -> Option<Length> {
    let in_epochs = fields.opt_u64(epochs, 1..);
    let in_steps = fields.opt_u64(steps, 1..);
    if in_epochs.is_some() && in_steps.is_some() {
        fields.problem(steps, format!("give `{epochs}` or `{steps}`, not both"));
    }
    in_epochs.map(Length::Epochs).or(in_steps.map(Length::Steps))
}

fn read_constant(_: &mut Fields<'_>) -> Kind {
    Kind::Constant
}

fn read_step(fields: &mut Fields<'_>) -> Kind {
    Kind::Step { step_size: fields.req_u64("step_size", 1..), gamma: fields.f64("gamma", POSITIVE, 0.1) }
}

fn read_multistep(fields: &mut Fields<'_>) -> Kind {
    let milestones = fields.opt_usizes("milestones", 0..);
    if milestones.is_none() && !fields.has("milestones") {
        fields.problem("milestones", "missing key `milestones`");
    }
    let milestones = milestones.unwrap_or_default().into_iter().map(|m| m as u64).collect();
    Kind::MultiStep { milestones, gamma: fields.f64("gamma", POSITIVE, 0.1) }
}

fn read_exponential(fields: &mut Fields<'_>) -> Kind {
    Kind::Exponential { gamma: fields.req_f64("gamma", POSITIVE) }
}

fn read_cosine(fields: &mut Fields<'_>) -> Kind {
    Kind::Cosine { t_max: fields.opt_u64("t_max", 1..), eta_min: fields.f64("eta_min", 0.0.., 0.0) }
}

fn read_cosine_restarts(fields: &mut Fields<'_>) -> Kind {
    Kind::CosineRestarts {
        t_0: fields.req_u64("t_0", 1..),
        t_mult: fields.u64("t_mult", 1.., 1),
        eta_min: fields.f64("eta_min", 0.0.., 0.0),
    }
}

fn read_linear(fields: &mut Fields<'_>) -> Kind {
    Kind::Linear {
        start_factor: fields.f64("start_factor", 0.0..=1.0, 1.0 / 3.0),
        end_factor: fields.f64("end_factor", 0.0..=1.0, 1.0),
        // In a chain, its whole length; alone, PyTorch's default.
        total: if fields.has("epochs") || fields.has("steps") {
            fields.opt_u64("total_iters", 1..)
        } else {
            Some(fields.u64("total_iters", 1.., 5))
        },
    }
}

fn read_polynomial(fields: &mut Fields<'_>) -> Kind {
    Kind::Polynomial { power: fields.f64("power", 0.0.., 1.0), total: fields.opt_u64("total_iters", 1..) }
}

fn read_warmup(fields: &mut Fields<'_>) -> Kind {
    Kind::Warmup { start_factor: fields.f64("start_factor", 0.0..=1.0, WARMUP_START) }
}

fn read_one_cycle(fields: &mut Fields<'_>) -> Kind {
    Kind::OneCycle {
        max_lr: fields.opt_f64("max_lr", POSITIVE),
        pct_start: fields.f64("pct_start", 0.0..=1.0, 0.3),
        anneal: fields.choice("anneal", &[("cos", Anneal::Cos), ("linear", Anneal::Linear)], "cos"),
        div_factor: fields.f64("div_factor", POSITIVE, 25.0),
        final_div_factor: fields.f64("final_div_factor", POSITIVE, 1e4),
        total: fields.opt_u64("total_steps", 1..),
    }
}

fn read_noam(fields: &mut Fields<'_>) -> Kind {
    Kind::Noam { d_model: fields.req_u64("d_model", 1..), warmup: fields.u64("warmup_steps", 1.., 4000) }
}

fn read_inverse_sqrt(fields: &mut Fields<'_>) -> Kind {
    Kind::InverseSqrt { warmup: fields.u64("warmup_steps", 1.., 4000) }
}
