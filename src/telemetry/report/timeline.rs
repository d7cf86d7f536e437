//! The x axes of a run's charts (step, epoch and time of training), and what is marked on them.

use super::records::{Record, Run};
use crate::error::ExitCode;
use crate::show::count;
use crate::telemetry::events::{CheckpointEvent, EpochEvent, Event};
use serde::Serialize;

/// Rows of the axis table in the page; between them the page interpolates.
const MAX_ROWS: usize = 1000;
/// Checkpoints that are marked; more can't be told from each other.
const MAX_CHECKPOINTS: usize = 400;

/// The epoch and the time of training at a step. `epoch` and `time` are empty if the run does not tell them.
#[derive(Debug, Default, PartialEq, Serialize)]
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
pub(super) enum Kind {
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
    pub kind: Kind,
    pub step: u64,
    pub text: String,
    /// An end by a failure.
    pub bad: bool,
}

impl Kind {
    pub const ALL: [Kind; 5] = [Kind::Checkpoint, Kind::Resume, Kind::Resize, Kind::Restart, Kind::End];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Checkpoint => "checkpoint",
            Kind::End => "end",
            Kind::Resume => "resume",
            Kind::Restart => "restart",
            Kind::Resize => "resize",
        }
    }

    /// The shape of its mark, an SVG path around the origin.
    pub fn glyph(self) -> &'static str {
        match self {
            Kind::Checkpoint => "M-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0 -5 0z",
            Kind::End => "M-3.6 -3.6h7.2v7.2h-7.2z",
            Kind::Resume => "M-3.5 -4.5L5 0L-3.5 4.5z",
            Kind::Restart => {
                "M-4 -2.6L-2.6 -4L0 -1.4L2.6 -4L4 -2.6L1.4 0L4 2.6L2.6 4L0 1.4L-2.6 4L-4 2.6L-1.4 0z"
            }
            Kind::Resize => "M0 -5L5 0L0 5L-5 0z",
        }
    }
}

impl Mark {
    /// Whether a rule through the chart shows it, and not only a sign at the axis.
    pub fn has_rule(&self) -> bool {
        match self.kind {
            Kind::Checkpoint => false,
            Kind::End => self.bad,
            Kind::Resume | Kind::Restart | Kind::Resize => true,
        }
    }
}

impl Axis {
    pub fn of(run: &Run) -> Self {
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

/// Steps in ascending order, each with the seconds of training; without seconds if a line has no time.
fn clocked(records: &[Record]) -> (Vec<f64>, Vec<f64>) {
    let (mut steps, mut times) = (Vec::new(), Vec::new());
    let (mut clock, mut trained, mut before) = (0.0, 0.0, None);
    for record in records {
        match record.event {
            // From here on training goes on with what it had reached; the time since then trained nothing.
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
fn anchors(run: &Run) -> Vec<(f64, f64)> {
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
pub(super) fn marks(of: &Run, run: usize) -> Vec<Mark> {
    let mut world = of.starts.first().map(|start| start.world);
    let (mut marks, mut open) = (Vec::new(), None::<Mark>);
    let mut reached = 0;
    for event in of.events() {
        let (kind, text, bad) = match event {
            Event::Checkpoint(it) => {
                marks.push(Mark { run, kind: Kind::Checkpoint, step: it.step, text: saved(it), bad: false });
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
                let code = ExitCode::from_status(it.exit_code.into());
                let bad = !matches!(code, Some(ExitCode::Done | ExitCode::Stopped));
                (Kind::End, format!("ended at step {}: {}", it.step, it.reason), bad)
            }
            Event::Restart(it) => (Kind::Restart, format!("attempt {}: {}", it.attempt, it.reason), false),
            Event::Resume(it) => {
                let resized = world.replace(it.world).filter(|before| *before != it.world);
                let kind = if resized.is_some() { Kind::Resize } else { Kind::Resume };
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

fn thinned(mut marks: Vec<Mark>) -> Vec<Mark> {
    let checkpoints = marks.iter().filter(|mark| mark.kind == Kind::Checkpoint).count();
    let stride = checkpoints.div_ceil(MAX_CHECKPOINTS).max(1);
    let mut seen = 0;
    marks.retain(|mark| {
        seen += usize::from(mark.kind == Kind::Checkpoint);
        mark.kind != Kind::Checkpoint || (checkpoints - seen) % stride == 0
    });
    marks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::report::tests::{end, epoch, run, step};
    use crate::telemetry::{RestartEvent, ResumeEvent};

    fn resume(step: u64, world: usize) -> Event {
        let path = format!("checkpoints/step-{step:08}");
        Event::Resume(ResumeEvent { step, epoch: 0, path, world, global_batch: 8, accumulate: 1 })
    }

    fn restart() -> Event {
        Event::Restart(RestartEvent { attempt: 2, reason: "rank 1 was killed".into() })
    }

    /// With the second at which each event was written.
    fn timed(events: Vec<(f64, Event)>) -> Run {
        let (times, events): (Vec<f64>, Vec<Event>) = events.into_iter().unzip();
        let mut run = run(events);
        for (record, time) in run.records.iter_mut().zip(times) {
            record.time = Some(1e9 + time);
        }
        run
    }

    #[test]
    fn the_time_of_training_leaves_out_pauses_and_lost_steps() {
        let run = timed(vec![
            (0.0, step(10, 1.0)),
            (5.0, step(20, 1.0)),
            // Steps up to 27 are lost.
            (9.0, end(27, 90, "rank 1 was killed")),
            (1000.0, restart()),
            (1001.0, resume(20, 2)),
            (1006.0, step(30, 1.0)),
            (1008.0, epoch(0, 30, 1.0)),
        ]);
        let axis = Axis::of(&run);
        assert_eq!(axis.step, [10.0, 20.0, 30.0]);
        assert_eq!(axis.time, [0.0, 5.0, 12.0], "the epoch ends 7 s after the resume");
        assert_eq!(axis.epoch, [0.3333, 0.6667, 1.0]);
    }

    #[test]
    fn an_epoch_that_was_cut_short_is_a_part_of_one() {
        let of = |epoch_number, at, n| {
            let mut event = epoch(epoch_number, at, 1.0);
            if let Event::Epoch(it) = &mut event {
                it.train.n = Some(n);
            }
            event
        };
        let axis = Axis::of(&run(vec![step(4, 1.0), of(0, 8, 128), step(10, 1.0), of(1, 12, 64)]));
        assert_eq!(axis.step, [4.0, 8.0, 10.0, 12.0]);
        assert_eq!(axis.epoch, [0.5, 1.0, 1.25, 1.5]);
    }

    #[test]
    fn a_line_without_time_leaves_no_axis_of_time() {
        let mut run = timed(vec![(0.0, step(10, 1.0)), (5.0, step(20, 1.0))]);
        run.records[1].time = None;
        let axis = Axis::of(&run);
        assert_eq!((axis.step.len(), axis.time.len(), axis.epoch.len()), (2, 0, 0));
        assert_eq!(Axis::of(&super::super::tests::run(vec![])), Axis::default());
    }

    #[test]
    fn a_long_run_has_a_short_axis_up_to_its_last_step() {
        let run = run((1..=5555).map(|n| step(n, 1.0)).collect());
        let axis = Axis::of(&run);
        assert!(axis.step.len() <= MAX_ROWS + 1, "{}", axis.step.len());
        assert_eq!((axis.step[0], axis.step.last()), (1.0, Some(&5555.0)));
    }

    #[test]
    fn what_happens_at_one_point_is_one_mark() {
        let run = run(vec![
            resume(0, 2),
            step(10, 1.0),
            end(12, 90, "rank 1 was killed"),
            restart(),
            resume(10, 2),
            step(20, 1.0),
            end(20, 0, "stopped"),
            resume(20, 4),
            step(30, 1.0),
            end(30, 0, "done"),
        ]);
        let found: Vec<(Kind, u64, bool)> =
            marks(&run, 0).into_iter().map(|mark| (mark.kind, mark.step, mark.bad)).collect();
        assert_eq!(
            found,
            [
                (Kind::Resume, 0, false),
                (Kind::Restart, 10, true),
                (Kind::Resize, 20, false),
                (Kind::End, 30, false)
            ]
        );
        let texts: Vec<String> = marks(&run, 0).into_iter().map(|mark| mark.text).collect();
        assert_eq!(
            texts[1],
            "ended at step 12: rank 1 was killed; attempt 2: rank 1 was killed; resumed at step 10 on 2 processes"
        );
        assert_eq!(texts[2], "ended at step 20: stopped; resumed at step 20 on 4 processes (before: 2)");
    }
}
