use super::*;
use crate::{ExitCode, FailureCause};

fn exited(rank: usize, code: i32) -> Event {
    Event::WorkerExited { rank, status: WorkerStatus::Exited(code), evidence: Evidence::default() }
}

fn killed_by(rank: usize, signal: i32) -> Event {
    let status = WorkerStatus::Signaled { signal, core_dumped: false };
    Event::WorkerExited { rank, status, evidence: Evidence::default() }
}

/// A generation whose workers are all running, after `events`; and the actions of the last event.
fn after(world: usize, events: &[Event]) -> (GenerationState, Vec<Action>) {
    let starts = (0..world).map(Event::WorkerStarted);
    let all = std::iter::once(Event::Start).chain(starts).chain(events.iter().cloned());
    all.fold((GenerationState::new(world, Policy::default()), vec![]), |(state, _), event| state.step(event))
}

/// The exit code of a run that ends so.
pub(super) fn code_of(verdict: Verdict) -> ExitCode {
    match verdict {
        Verdict::Done => ExitCode::Done,
        Verdict::Stopped => ExitCode::Stopped,
        Verdict::Failed { cause, .. } => cause.code(),
    }
}

fn verdict(world: usize, events: &[Event]) -> (ExitCode, Option<usize>) {
    match after(world, events).1.last() {
        Some(Action::Finish(v)) => (code_of(*v), v.culprit()),
        other => panic!("not finished: {other:?}"),
    }
}

#[test]
fn starts_ranks_in_order_one_at_a_time() {
    let (state, actions) = GenerationState::new(2, Policy::default()).step(Event::Start);
    assert_eq!(actions, [Action::Spawn(0)]);
    let (state, actions) = state.step(Event::WorkerStarted(0));
    assert_eq!(actions, [Action::Spawn(1)]);
    assert_eq!(state.step(Event::WorkerStarted(1)).1, []);
}

#[test]
fn a_program_that_stops_unasked_has_failed() {
    let policy = Policy { stops_unasked: false, ..Policy::default() };
    let start = [Event::Start, Event::WorkerStarted(0), Event::WorkerStarted(1)];
    let verdict = |events: &[Event]| {
        let all = start.iter().chain(events).cloned();
        let (_, actions) =
            all.fold((GenerationState::new(2, policy), vec![]), |(state, _), event| state.step(event));
        match actions.last() {
            Some(Action::Finish(v)) => (code_of(*v), v.culprit()),
            other => panic!("not finished: {other:?}"),
        }
    };
    // Rank 0 was asked to stop because rank 1 had failed.
    assert_eq!(verdict(&[exited(1, 75), exited(0, 75)]), (ExitCode::WorkerFailed, Some(1)));
    let stop = Event::StopRequested;
    assert_eq!(verdict(&[stop.clone(), exited(1, 75), exited(0, 75)]), (ExitCode::Stopped, None));
    // The same signal had reached rank 1 first.
    assert_eq!(verdict(&[exited(1, 75), stop, exited(0, 75)]), (ExitCode::Stopped, None));
}

#[test]
fn verdicts_without_failures() {
    assert_eq!(verdict(2, &[exited(1, 0), exited(0, 0)]), (ExitCode::Done, None));
    assert_eq!(verdict(2, &[exited(1, 75), exited(0, 75)]), (ExitCode::Stopped, None));
    assert_eq!(verdict(2, &[Event::StopRequested, exited(1, 0), exited(0, 75)]), (ExitCode::Stopped, None));
    assert_eq!(verdict(2, &[Event::StopRequested, exited(1, 0), exited(0, 0)]), (ExitCode::Done, None));
}

#[test]
fn a_failure_takes_the_others_down_at_once_and_kills_them_after_the_grace() {
    let (state, actions) = after(3, &[killed_by(1, 9)]);
    let grace = Policy::default().grace;
    let down = [Action::TakeDown(0), Action::TakeDown(2), Action::SetTimer(Timer::Grace, grace)];
    assert_eq!(actions, down, "no signal, which would mean to save and stop");
    let (state, _) = state.step(exited(0, 91));
    let (state, actions) = state.step(Event::TimerFired(Timer::Grace));
    assert_eq!(actions[0], Action::Kill(2));
    let (_, actions) = state.step(killed_by(2, 9));
    assert_eq!(actions, [Action::Finish(Verdict::Failed { culprit: 1, cause: FailureCause::Other })]);
}

#[test]
fn a_failed_run_ends_within_two_seconds() {
    let p = Policy::default();
    assert!(p.root_cause_wait + p.grace < Duration::from_millis(1500));
}

#[test]
fn documented_codes_pass_through_and_others_become_90() {
    for (code, run) in
        [(78, 78), (74, 74), (92, 92), (69, 69), (70, 70), (2, 2), (90, 90), (3, 90), (101, 90), (143, 90)]
    {
        let (exit, culprit) = verdict(2, &[exited(1, code), exited(0, 91)]);
        assert_eq!((exit as i32, culprit), (run, Some(1)), "worker code {code}");
    }
    // Without a root cause, the first consequence is blamed.
    assert_eq!(verdict(2, &[exited(1, 91), exited(0, 91)]), (ExitCode::Collective, Some(1)));
    assert_eq!(verdict(2, &[exited(1, 93), exited(0, 91)]), (ExitCode::Rendezvous, Some(1)));
}

#[test]
fn an_exit_code_decides_unless_the_note_is_more_precise() {
    use FailureCause::*;
    for (code, noted, cause) in [
        (69, DeviceLost, DeviceLost),
        (91, Timeout, Timeout),
        (78, Other, Spec),
        (91, Panicked, PeerLost),
        (1, Io, Io),
        (1, PeerLost, Other),
        (1, Panicked, Panicked),
    ] {
        let status = WorkerStatus::Exited(code);
        let evidence = Evidence { noted: Some(noted), ..Evidence::default() };
        let end = End { status, requested: Requested::Nothing, order: 0, overdue: false, evidence };
        assert_eq!(end.cause(), cause, "{code}, {noted:?}");
    }
}

#[test]
fn a_consequence_waits_for_its_root_cause_and_is_not_blamed() {
    let (state, actions) = after(3, &[exited(0, 91)]);
    assert_eq!(
        actions,
        [Action::SetTimer(Timer::RootCause, Policy::default().root_cause_wait)],
        "nobody is signalled yet"
    );
    let (_, actions) = state.clone().step(killed_by(2, 11));
    assert_eq!(actions[0], Action::TakeDown(1));
    // ... even when the root cause is reported after the wait.
    let (state, actions) = state.step(Event::TimerFired(Timer::RootCause));
    assert_eq!(actions[..2], [Action::TakeDown(1), Action::TakeDown(2)]);
    let (state, _) = state.step(exited(1, 91));
    let (_, actions) = state.step(exited(2, 92));
    assert_eq!(actions, [Action::Finish(Verdict::Failed { culprit: 2, cause: FailureCause::NonFinite })]);
}

/// Its peers have passed the last barrier, so nothing waits for it.
#[test]
fn a_worker_that_hangs_while_exiting_is_killed_and_the_run_is_done() {
    let (state, actions) = after(3, &[exited(1, 0)]);
    assert_eq!(actions, [Action::SetTimer(Timer::Last, Policy::default().last)]);
    let (state, _) = state.step(exited(0, 0));
    let (state, actions) = state.step(Event::TimerFired(Timer::Last));
    assert_eq!(actions[0], Action::Kill(2));
    let (_, actions) = state.step(killed_by(2, 9));
    assert_eq!(actions, [Action::Finish(Verdict::Done)]);
    // A worker that fails at its end does not hang.
    assert_eq!(verdict(2, &[exited(0, 0), killed_by(1, 11)]), (ExitCode::WorkerFailed, Some(1)));
}

#[test]
fn a_stop_is_forwarded_once_and_a_second_one_kills() {
    let (state, actions) = after(2, &[Event::StopRequested]);
    assert_eq!(actions[1..3], [Action::Terminate(0), Action::Terminate(1)]);
    let (state, actions) = state.step(Event::StopRequested);
    assert_eq!(actions, [], "`timeout` delivers one request twice");
    let (state, _) = state.step(Event::TimerFired(Timer::Debounce));
    let (state, actions) = state.step(Event::StopRequested);
    assert_eq!(actions[..2], [Action::Kill(0), Action::Kill(1)]);
    let (state, _) = state.step(killed_by(0, 9));
    let (_, actions) = state.step(killed_by(1, 9));
    assert_eq!(actions, [Action::Finish(Verdict::Stopped)]);
}

/// Workers end because of the stop request, or detect the failure themselves.
#[test]
fn a_failure_after_a_stop_request_sends_no_second_request() {
    let (state, _) = after(2, &[Event::StopRequested]);
    let (_, actions) = state.step(exited(0, 74));
    assert_eq!(actions, [Action::SetTimer(Timer::Grace, Policy::default().grace)]);
}

/// Whichever comes first, the grace period of the stop is the end of both.
#[test]
fn a_failure_does_not_give_a_stop_more_time() {
    let (stop, failure) = (Event::StopRequested, exited(0, 74));
    let consequence = exited(0, 91);
    for (first, second, code) in [
        (&stop, &failure, ExitCode::Io),
        (&failure, &stop, ExitCode::Io),
        (&consequence, &stop, ExitCode::Collective),
        (&stop, &consequence, ExitCode::Stopped),
    ] {
        let events = [first, second];
        let (state, actions) = after(2, std::slice::from_ref(first));
        let (state, more) = state.step(second.clone());
        let limit = Action::SetTimer(Timer::StopDeadline, Policy::default().stop_deadline);
        assert!([actions, more].concat().contains(&limit), "{events:?}");
        let (state, actions) = state.step(Event::TimerFired(Timer::StopDeadline));
        assert_eq!(actions[0], Action::Kill(1), "{events:?}");
        let (_, actions) = state.step(killed_by(1, 9));
        assert!(
            matches!(&actions[..], [Action::Finish(end)] if code_of(*end) == code),
            "{events:?}: {actions:?}"
        );
    }
}

#[test]
fn a_recall_without_a_save_is_not_a_stop_request() {
    let (_, actions) = after(2, &[Event::Recalled(Recall::TakeDown)]);
    assert_eq!(actions[..2], [Action::TakeDown(0), Action::TakeDown(1)]);
    let (_, actions) = after(2, &[Event::Recalled(Recall::Save)]);
    assert_eq!(actions[..2], [Action::Terminate(0), Action::Terminate(1)]);
}

#[test]
fn a_signal_after_a_recall_is_the_first_one() {
    let (state, _) = after(2, &[Event::Recalled(Recall::Save)]);
    let (state, actions) = state.step(Event::StopRequested);
    assert!(!actions.iter().any(|a| matches!(a, Action::Kill(_))), "{actions:?}");
    let (state, _) = state.step(Event::TimerFired(Timer::Debounce));
    let (_, actions) = state.step(Event::StopRequested);
    assert_eq!(actions[..2], [Action::Kill(0), Action::Kill(1)]);
}

#[test]
fn a_second_signal_on_another_node_kills_at_once_and_blames_nobody() {
    let kill = Event::Recalled(Recall::Kill);
    for before in [vec![], vec![Event::Recalled(Recall::Save)], vec![Event::Recalled(Recall::TakeDown)]] {
        let (state, _) = after(2, &before);
        let (_, actions) = state.step(kill.clone());
        assert_eq!(actions[..2], [Action::Kill(0), Action::Kill(1)], "{before:?}");
        let events = [&before[..], &[kill.clone(), killed_by(0, 9), killed_by(1, 9)]].concat();
        assert_eq!(verdict(2, &events), (ExitCode::Stopped, None), "{before:?}");
    }
    // A failure before it remains one.
    assert_eq!(verdict(2, &[exited(0, 74), kill, killed_by(1, 9)]).1, Some(0));
}

#[test]
fn a_rank_that_does_not_end_when_its_node_is_recalled_is_named() {
    let recalled = [Event::Recalled(Recall::TakeDown), exited(0, 75), Event::TimerFired(Timer::Grace)];
    let events = |more: &[Event]| [&recalled[..], more].concat();
    assert_eq!(verdict(2, &events(&[killed_by(1, 9)])), (ExitCode::WorkerFailed, Some(1)));
    // Its peers on this node time out only after the recall.
    let late =
        [Event::Recalled(Recall::TakeDown), exited(0, 91), Event::TimerFired(Timer::Grace), killed_by(1, 9)];
    assert_eq!(verdict(2, &late), (ExitCode::Collective, Some(1)));
    // A worker that ends on request is not to blame; after signals, no worker is.
    assert_eq!(verdict(2, &[Event::Recalled(Recall::TakeDown), exited(0, 91), killed_by(1, 15)]).1, None);
    let signals =
        [Event::StopRequested, Event::Recalled(Recall::TakeDown), Event::TimerFired(Timer::Debounce)];
    let killed = [Event::StopRequested, killed_by(0, 9), killed_by(1, 9)];
    assert_eq!(verdict(2, &[&signals[..], &killed[..]].concat()), (ExitCode::Stopped, None));
}

#[test]
fn a_worker_that_stopped_before_training_explains_lost_peers() {
    let events = [Event::StopRequested, exited(1, 75), exited(0, 91)];
    assert_eq!(verdict(2, &events), (ExitCode::Stopped, None));
    assert_eq!(verdict(2, &[exited(1, 75), exited(0, 91)]), (ExitCode::Collective, Some(0)));
}

#[test]
fn a_worker_that_ignores_the_stop_is_named_after_the_deadline() {
    let events =
        [Event::StopRequested, exited(0, 75), Event::TimerFired(Timer::StopDeadline), killed_by(1, 9)];
    assert_eq!(verdict(2, &events), (ExitCode::WorkerFailed, Some(1)));
}

#[test]
fn a_worker_killed_by_the_stop_signal_is_not_a_failure() {
    // It had not installed its handlers yet; its peers then lose the connection to it.
    let early = [Event::StopRequested, exited(0, 91), killed_by(1, 15)];
    assert_eq!(verdict(2, &early), (ExitCode::Stopped, None));
    // Slurm signals every process of the step: the worker's death may be seen before the supervisor's own signal.
    let slurm = [killed_by(1, 10), Event::StopRequested, exited(0, 91)];
    assert_eq!(verdict(2, &slurm), (ExitCode::Stopped, None));
    // A failure before the request remains a failure.
    let late = [exited(0, 91), Event::TimerFired(Timer::RootCause), Event::StopRequested, killed_by(1, 15)];
    assert_eq!(verdict(2, &late), (ExitCode::Collective, Some(0)));
    assert_eq!(verdict(1, &[killed_by(0, 15)]), (ExitCode::WorkerFailed, Some(0)));
}

#[test]
fn a_failed_save_after_a_stop_keeps_its_code() {
    assert_eq!(verdict(2, &[Event::StopRequested, exited(0, 74), exited(1, 91)]), (ExitCode::Io, Some(0)));
}

/// It may wait for a save in progress or for its sinks, while its peers have received its word.
#[test]
fn a_worker_that_failed_and_is_killed_before_it_exits_keeps_its_code() {
    let killed = |noted| Event::WorkerExited {
        rank: 0,
        status: WorkerStatus::Signaled { signal: 9, core_dumped: false },
        evidence: Evidence { noted, ..Evidence::default() },
    };
    let down = [exited(1, 91), Event::TimerFired(Timer::RootCause), Event::TimerFired(Timer::Grace)];
    let end = |first: &[Event], own| verdict(2, &[first, &[killed(own)]].concat());
    assert_eq!(end(&down, Some(FailureCause::Checkpoint)), (ExitCode::Io, Some(0)));
    assert_eq!(end(&down, None), (ExitCode::Collective, Some(1)));
    // A second signal does not make a failed save a stop.
    let stop =
        [Event::StopRequested, Event::TimerFired(Timer::Debounce), Event::StopRequested, exited(1, 91)];
    assert_eq!(end(&stop, Some(FailureCause::Checkpoint)), (ExitCode::Io, Some(0)));
    assert_eq!(end(&stop, None), (ExitCode::Stopped, None));
}

fn killed_after(rank: usize, noted: Option<FailureCause>) -> Event {
    let status = WorkerStatus::Signaled { signal: 9, core_dumped: false };
    Event::WorkerExited { rank, status, evidence: Evidence { noted, ..Evidence::default() } }
}

/// A program that ends with 0 in the midst of it all does not make the run a success, however long the others take to end.
#[test]
fn a_rank_that_lost_others_and_is_killed_is_not_done() {
    let end = |kind| verdict(2, &[exited(1, 0), Event::TimerFired(Timer::Last), killed_after(0, kind)]);
    assert_eq!(end(Some(FailureCause::PeerLost)), (ExitCode::Collective, Some(0)));
    assert_eq!(end(None), (ExitCode::Done, None));
    // A stop request explains it, and one that did not stop in time did not.
    let both = [0, 1].map(|rank| killed_after(rank, Some(FailureCause::PeerLost)));
    let end = |first: &[Event]| verdict(2, &[first, &both].concat());
    let twice = [Event::StopRequested, Event::TimerFired(Timer::Debounce), Event::StopRequested];
    assert_eq!(end(&twice), (ExitCode::Stopped, None));
    let late = [Event::StopRequested, Event::TimerFired(Timer::StopDeadline)];
    assert_eq!(end(&late), (ExitCode::WorkerFailed, Some(0)));
}

/// Of two that are killed when their node is recalled, the one that had noticed nothing may be what others lost.
#[test]
fn a_recalled_rank_that_had_lost_others_is_no_silent_one() {
    let down = [Event::Recalled(Recall::TakeDown), Event::TimerFired(Timer::Grace)];
    let end = |kinds: [Option<FailureCause>; 2]| {
        verdict(2, &[&down[..], &[killed_after(0, kinds[0]), killed_after(1, kinds[1])]].concat())
    };
    assert_eq!(end([Some(FailureCause::Timeout), None]), (ExitCode::WorkerFailed, Some(1)));
    assert_eq!(end([None, None]), (ExitCode::WorkerFailed, Some(0)));
    assert_eq!(end([Some(FailureCause::Timeout); 2]), (ExitCode::Collective, Some(0)));
}

#[test]
fn a_start_that_fails_starts_no_further_rank() {
    let (state, _) = GenerationState::new(3, Policy::default()).step(Event::Start);
    let (state, _) = state.step(Event::WorkerStarted(0));
    let (state, actions) = state.step(Event::WorkerSpawnFailed { rank: 1, error: "EAGAIN".into() });
    assert_eq!(actions[0], Action::TakeDown(0));
    let (_, actions) = state.step(exited(0, 143));
    assert_eq!(actions, [Action::Finish(Verdict::Failed { culprit: 1, cause: FailureCause::NotStarted })]);
}

#[test]
fn an_unkillable_process_does_not_block_the_run() {
    let events = [exited(0, 3), Event::TimerFired(Timer::Grace), Event::TimerFired(Timer::Abandon)];
    assert_eq!(verdict(2, &events), (ExitCode::WorkerFailed, Some(0)));
}
