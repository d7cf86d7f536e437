//! The x axes of a run's charts (step, epoch and time of training), and the marks on them.

use super::records::{Record, RunRecords};
use crate::events::{CheckpointEvent, EpochEvent, Event, RunEnd};
use base::display::count;
use serde::Serialize;

/// Rows of the axis table in the page; between them the page interpolates.
const MAX_ROWS: usize = 1000;
/// The largest number of checkpoints in the data of a page, whose zoom tells them apart.
const MAX_CHECKPOINTS: usize = 1000;
/// As a part of the width of a static drawing: closer marks are not told apart.
const APART: f64 = 7.0 / 472.0;

/// The epoch and the time of training at a step. `epoch` and `time` are empty if the run does not record them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Axis {
    pub step: Vec<f64>,
    pub epoch: Vec<f64>,
    /// Seconds since the first line, without the time from the end of a start to the next one, and without the time of
    /// steps that were lost.
    pub time: Vec<f64>,
}

/// From the least to the most important: of what happened at one step, the last one gives the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum MarkKind {
    Checkpoint,
    End,
    Resume,
    Restart,
    /// A resume on another number of processes.
    Resize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Mark {
    pub run: usize,
    pub kind: MarkKind,
    pub step: u64,
    pub text: String,
    /// An end by a failure.
    pub bad: bool,
}

impl MarkKind {
    pub const ALL: [MarkKind; 5] =
        [MarkKind::Checkpoint, MarkKind::Resume, MarkKind::Resize, MarkKind::Restart, MarkKind::End];

    pub fn name(self) -> &'static str {
        match self {
            MarkKind::Checkpoint => "checkpoint",
            MarkKind::End => "end",
            MarkKind::Resume => "resume",
            MarkKind::Restart => "restart",
            MarkKind::Resize => "resize",
        }
    }

    /// The shape of its mark, an SVG path around the origin.
    pub fn glyph(self) -> &'static str {
        match self {
            MarkKind::Checkpoint => "M-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0 -5 0z",
            MarkKind::End => "M-3.6 -3.6h7.2v7.2h-7.2z",
            MarkKind::Resume => "M-3.5 -4.5L5 0L-3.5 4.5z",
            MarkKind::Restart => {
                "M-4 -2.6L-2.6 -4L0 -1.4L2.6 -4L4 -2.6L1.4 0L4 2.6L2.6 4L0 1.4L-2.6 4L-4 2.6L-1.4 0z"
            }
            MarkKind::Resize => "M0 -5L5 0L0 5L-5 0z",
        }
    }
}

impl Mark {
    /// Whether a rule through the chart shows it, and not only a sign at the axis.
    pub fn has_rule(&self) -> bool {
        match self.kind {
            MarkKind::Checkpoint => false,
            MarkKind::End => self.bad,
            MarkKind::Resume | MarkKind::Restart | MarkKind::Resize => true,
        }
    }
}

impl Axis {
    pub fn new(run: &RunRecords) -> Self {
        let (mut steps, mut times) = clocked(&run.records);
        let anchors = anchors(run);
        let stride = steps.len().div_ceil(MAX_ROWS).max(1);
        let last = steps.len().saturating_sub(1);
        let thin = |all: Vec<f64>| -> Vec<f64> {
            let kept = all.into_iter().enumerate().filter(|(i, _)| i % stride == 0 || *i == last);
            kept.map(|(_, value)| value).collect()
        };
        (steps, times) = (thin(steps), thin(times));
        let epoch = steps.iter().filter_map(|step| epoch_at(&anchors, *step)).collect();
        Self { step: steps, epoch, time: times }
    }
}

#[cfg(feature = "board")]
impl Axis {
    /// The rows after `step`.
    pub fn after(self, step: f64) -> Self {
        let first = self.step.partition_point(|at| *at <= step);
        let rest = |all: Vec<f64>| all.into_iter().skip(first).collect();
        Self { step: rest(self.step), epoch: rest(self.epoch), time: rest(self.time) }
    }
}

/// Steps in ascending order, each with the seconds of training; without seconds if a line has no time.
fn clocked(records: &[Record]) -> (Vec<f64>, Vec<f64>) {
    let (mut steps, mut times) = (Vec::new(), Vec::new());
    let (mut clock, mut trained, mut before) = (0.0, 0.0, None);
    for record in records {
        match record.event {
            // From here on training continues from this point; the time since then trained nothing.
            Event::Resume(_) | Event::Restart(_) => clock = trained,
            _ => {
                clock +=
                    record.time.zip(before).map_or(0.0, |(now, before): (f64, f64)| (now - before).max(0.0))
            }
        }
        before = record.time;
        let step = match &record.event {
            Event::Step(it) => it.step as f64,
            Event::Epoch(it) => it.step as f64,
            _ => continue,
        };
        trained = clock;
        // An epoch ends at its last step; steps that are repeated replace those from before.
        while steps.last().is_some_and(|last| *last >= step) {
            steps.pop();
            times.pop();
        }
        steps.push(step);
        times.push(clock);
    }
    if records.iter().any(|record| record.time.is_none()) {
        times.clear();
    }
    (steps, times)
}

/// Steps at which a known number of epochs is complete. Of the last one, which `max_steps` may have cut short, the part counts
/// that its samples are of the most that an epoch had.
fn anchors(run: &RunRecords) -> Vec<(f64, f64)> {
    let most = run.epochs().filter_map(|epoch| epoch.train.n).max();
    let part = |epoch: &EpochEvent| match (epoch.train.n, most) {
        (Some(n), Some(most)) if most > 0 => n as f64 / most as f64,
        _ => 1.0,
    };
    let last = run.epochs().last().map(|epoch| epoch.epoch);
    let mut anchors: Vec<(f64, f64)> = Vec::new();
    for epoch in run.epochs() {
        if anchors.is_empty() && epoch.epoch == 0 {
            anchors.push((0.0, 0.0));
        }
        let done = if Some(epoch.epoch) == last { part(epoch) } else { 1.0 };
        let anchor = (epoch.step as f64, epoch.epoch as f64 + done);
        if anchors.last().is_none_or(|last| last.0 < anchor.0 && last.1 < anchor.1) {
            anchors.push(anchor);
        }
    }
    anchors
}

/// The epoch at `step`, by the two anchors around it, or the nearest two.
fn epoch_at(anchors: &[(f64, f64)], step: f64) -> Option<f64> {
    let after = anchors.partition_point(|anchor| anchor.0 < step).clamp(1, anchors.len().max(2) - 1);
    let ((s0, e0), (s1, e1)) = (*anchors.get(after - 1)?, *anchors.get(after)?);
    let epoch = e0 + (e1 - e0) * (step - s0) / (s1 - s0);
    Some((epoch * 1e4).round() / 1e4)
}

/// The marks of run number `run`. What happens at one point (a failure, the restart, the resume) is one mark.
pub(super) fn marks(of: &RunRecords, run: usize) -> Vec<Mark> {
    let mut world = of.starts.first().map(|start| start.world);
    let (mut marks, mut open) = (Vec::new(), None::<Mark>);
    let mut reached = 0;
    for event in of.events() {
        let (kind, text, bad) = match event {
            Event::Checkpoint(it) => {
                marks.push(Mark {
                    run,
                    kind: MarkKind::Checkpoint,
                    step: it.step,
                    text: saved(it),
                    bad: false,
                });
                continue;
            }
            Event::Step(it) => {
                reached = it.step;
                marks.extend(open.take());
                continue;
            }
            Event::Epoch(it) => {
                reached = it.step;
                marks.extend(open.take());
                continue;
            }
            Event::End(it) => {
                let bad = it.outcome() == RunEnd::Failed;
                (MarkKind::End, format!("ended at step {}: {}", it.step, it.reason), bad)
            }
            Event::Restart(it) => {
                (MarkKind::Restart, format!("attempt {}: {}", it.attempt, it.reason), false)
            }
            Event::Divergence(it) => (
                MarkKind::Restart,
                format!("{}: {} differs after step {}", it.words(), it.tensor, it.step),
                true,
            ),
            Event::Resume(it) => {
                let resized = world.replace(it.world).filter(|before| *before != it.world);
                let kind = if resized.is_some() { MarkKind::Resize } else { MarkKind::Resume };
                let before = resized.map_or(String::new(), |before| format!(" (before: {before})"));
                let text = format!("resumed at step {} on {}{before}", it.step, count(it.world, "process"));
                (kind, text, false)
            }
        };
        let step = event.step().unwrap_or(reached);
        let mark = Mark { run, kind, step, text, bad };
        open = Some(match open.take() {
            Some(earlier) => Mark {
                kind: earlier.kind.max(kind),
                text: format!("{}; {}", earlier.text, mark.text),
                bad: earlier.bad || bad,
                // That of a restart is not known.
                step: event.step().unwrap_or(earlier.step),
                run,
            },
            None => mark,
        });
    }
    marks.extend(open);
    thinned(marks)
}

fn saved(it: &CheckpointEvent) -> String {
    let name = it.path.rsplit('/').next().unwrap_or(&it.path);
    let held = it.held_up_s.map_or(String::new(), |s| format!(", held up training for {s:.2} s"));
    let size = match it.bytes {
        0..1_000_000 => format!("{:.1} kB", it.bytes as f64 / 1e3),
        bytes => format!("{:.1} MB", bytes as f64 / 1e6),
    };
    format!("checkpoint {name}, {size}{held}")
}

/// The marks of a static drawing, and whether checkpoints are left out because they could not be told apart. A few at one place are one mark.
pub(super) fn told_apart(marks: &[Mark]) -> (Vec<Mark>, bool) {
    let is_checkpoint = |mark: &&Mark| mark.kind == MarkKind::Checkpoint;
    let near = marks.iter().map(|mark| mark.step).max().unwrap_or(0) as f64 * APART;
    let mut saves: Vec<&Mark> = marks.iter().filter(is_checkpoint).collect();
    saves.sort_by_key(|mark| mark.step);
    let mut shown: Vec<Mark> = marks.iter().filter(|mark| !is_checkpoint(mark)).cloned().collect();
    let mut left_out = false;
    for group in saves.chunk_by(|a, b| ((b.step - a.step) as f64) < near || a.step == b.step) {
        let [first, .., last] = group else {
            shown.extend(group.iter().copied().cloned());
            continue;
        };
        if last.step > first.step && (last.step - first.step) as f64 >= near {
            left_out = true;
            continue;
        }
        let texts: Vec<&str> = group.iter().map(|mark| mark.text.as_str()).collect();
        shown.push(Mark { text: texts.join("; "), ..(*last).clone() });
    }
    (shown, left_out)
}

fn thinned(mut marks: Vec<Mark>) -> Vec<Mark> {
    let checkpoints = marks.iter().filter(|mark| mark.kind == MarkKind::Checkpoint).count();
    let stride = checkpoints.div_ceil(MAX_CHECKPOINTS).max(1);
    let mut seen = 0;
    marks.retain(|mark| {
        seen += usize::from(mark.kind == MarkKind::Checkpoint);
        mark.kind != MarkKind::Checkpoint || (checkpoints - seen) % stride == 0
    });
    marks
}

#[cfg(test)]
#[path = "timeline_tests.rs"]
mod tests;
