use super::*;
use crate::report::tests::{end, epoch, run};
use crate::samples::{restart, resume, step};

/// With the second at which each event was written.
fn timed(events: Vec<(f64, Event)>) -> RunRecords {
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
    let axis = Axis::new(&run);
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
    let axis = Axis::new(&run(vec![step(4, 1.0), of(0, 8, 128), step(10, 1.0), of(1, 12, 64)]));
    assert_eq!(axis.step, [4.0, 8.0, 10.0, 12.0]);
    assert_eq!(axis.epoch, [0.5, 1.0, 1.25, 1.5]);
}

#[test]
fn a_line_without_time_leaves_no_axis_of_time() {
    let mut run = timed(vec![(0.0, step(10, 1.0)), (5.0, step(20, 1.0))]);
    run.records[1].time = None;
    let axis = Axis::new(&run);
    assert_eq!((axis.step.len(), axis.time.len(), axis.epoch.len()), (2, 0, 0));
    assert_eq!(Axis::new(&super::super::tests::run(vec![])), Axis::default());
}

#[test]
fn a_long_run_has_a_short_axis_up_to_its_last_step() {
    let run = run((1..=5555).map(|n| step(n, 1.0)).collect());
    let axis = Axis::new(&run);
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
    let found: Vec<(MarkKind, u64, bool)> =
        marks(&run, 0).into_iter().map(|mark| (mark.kind, mark.step, mark.bad)).collect();
    assert_eq!(
        found,
        [
            (MarkKind::Resume, 0, false),
            (MarkKind::Restart, 10, true),
            (MarkKind::Resize, 20, false),
            (MarkKind::End, 30, false)
        ]
    );
    let texts: Vec<String> = marks(&run, 0).into_iter().map(|mark| mark.text).collect();
    assert_eq!(
        texts[1],
        "ended at step 12: rank 1 was killed; attempt 2: rank 1 was killed; resumed at step 10 on 2 processes"
    );
    assert_eq!(texts[2], "ended at step 20: stopped; resumed at step 20 on 4 processes (before: 2)");
}

#[test]
fn checkpoints_are_marked_where_they_are_told_apart() {
    let saves = |steps: &[u64]| -> Vec<Mark> {
        let mark = |step: &u64| Mark {
            run: 0,
            kind: MarkKind::Checkpoint,
            step: *step,
            text: format!("at {step}"),
            bad: false,
        };
        steps.iter().map(mark).collect()
    };
    let steps = |marks: &[Mark]| marks.iter().map(|mark| mark.step).collect::<Vec<_>>();
    let far: Vec<u64> = (1..=60).map(|n| 20 * n).collect();
    let (shown, left_out) = told_apart(&saves(&far));
    assert_eq!((steps(&shown), left_out), (far, false));
    // One at each step, beside others: none of them, and what else happened.
    let mut many = saves(&(1..=500).collect::<Vec<_>>());
    many.push(Mark { kind: MarkKind::End, ..many[499].clone() });
    many.extend(saves(&[1000, 2000]));
    let (shown, left_out) = told_apart(&many);
    assert_eq!((steps(&shown), left_out), (vec![500, 1000, 2000], true));
    assert_eq!(shown[0].kind, MarkKind::End);
    // A few at one place, as the best of an epoch beside one by steps.
    let (shown, left_out) = told_apart(&saves(&[500, 1000, 1000, 1003, 2000]));
    assert_eq!((steps(&shown), left_out), (vec![500, 1003, 2000], false));
    assert_eq!(shown[1].text, "at 1000; at 1000; at 1003");
    assert_eq!(told_apart(&saves(&[0, 0])).0.len(), 1);
}
