//! Single decisions. Whole histories are in [`histories`].

use super::super::events::Attribution;
use super::*;
use crate::FailureCause;
use crate::nodes::NodeRange;

#[path = "policy_histories.rs"]
mod histories;

fn limits(min: usize, max: usize, max_restarts: u32) -> Limits {
    Limits { max_restarts, ..Limits::new(NodeRange { min, max }) }
}

fn failure(code: ExitCode, attribution: Attribution, retry: bool) -> NodeEnd {
    let message = format!("{code:?} {attribution:?}");
    NodeEnd::Failed(NodeFailure {
        code,
        retry,
        ..NodeFailure::new(FailureCause::Other, attribution, message)
    })
}

fn killed() -> NodeEnd {
    failure(ExitCode::WorkerFailed, Attribution::Root, true)
}

fn joined(member: Member, seat: Option<usize>) -> Event {
    Event::Joined { member, seat, host: format!("host{member}"), nproc: 2, generation: 0 }
}

fn ended(member: Member, end: NodeEnd, checkpoint: Option<u64>) -> Event {
    Event::Ended { member, end, checkpoint }
}

fn stop(member: Member) -> Event {
    Event::StopRequested { member, at_once: false }
}

/// A run whose members 0, 1, … have seats 0, 1, …, after `events`; the actions of the last event.
fn after(limits: Limits, nodes: u64, events: &[Event]) -> (PolicyState, Vec<Action>) {
    let joins = (0..nodes).map(|m| joined(m, Some(m as usize)));
    joins.chain(events.iter().cloned()).fold(PolicyState::new(limits), |(state, _), event| state.step(event))
}

fn started(actions: &[Action]) -> &Generation {
    let generation = actions.iter().find_map(|a| if let Action::Start(g) = a { Some(g) } else { None });
    generation.unwrap_or_else(|| panic!("nothing starts: {actions:?}"))
}

fn finished(actions: &[Action]) -> ExitCode {
    let code =
        actions.iter().find_map(|a| if let Action::Finish { code, .. } = a { Some(*code) } else { None });
    code.unwrap_or_else(|| panic!("not finished: {actions:?}"))
}

#[test]
fn one_node_starts_at_once_and_ends_with_its_workers() {
    let (state, actions) = after(limits(1, 1, 0), 1, &[]);
    let expected = Generation { number: 1, attempt: 1, nodes: vec![(0, 2)], reason: None, checkpoint: None };
    assert_eq!(started(&actions), &expected);
    assert_eq!(finished(&state.clone().step(ended(0, NodeEnd::Done, None)).1), ExitCode::Done);
    assert_eq!(finished(&state.clone().step(ended(0, NodeEnd::Stopped, None)).1), ExitCode::Stopped);
    assert_eq!(finished(&state.step(ended(0, killed(), None)).1), ExitCode::WorkerFailed);
}

#[test]
fn a_fixed_number_of_nodes_waits_for_all_and_names_missing_ones() {
    let (state, actions) = after(limits(3, 3, 0), 2, &[]);
    assert_eq!(actions, []);
    let (_, actions) = state.clone().step(Event::TimerFired(Timer::Join));
    let Some(Action::Finish { code: ExitCode::Rendezvous, failure: Some(f) }) = actions.last() else {
        panic!("{actions:?}");
    };
    assert_eq!(f.message, "only 2 of 3 nodes connected in time; missing: node 2");
    // One that is lost meanwhile and returns changes nothing about that time, however often.
    let (state, actions) = state.step(Event::Lost(1));
    assert_eq!(actions, []);
    let (state, actions) = state.step(joined(1, None));
    assert_eq!(actions, []);
    let (_, actions) = state.step(joined(7, None));
    assert_eq!(started(&actions).nodes, [(0, 2), (1, 2), (7, 2)]);
}

#[test]
fn restarts_pause_longer_and_longer_until_there_is_progress() {
    let (mut state, _) = after(limits(1, 1, 4), 1, &[]);
    let mut pauses = Vec::new();
    for attempt in 2..=5 {
        let (next, mut actions) = state.step(ended(0, killed(), None));
        state = next;
        let pause = actions.iter().find_map(|a| match a {
            Action::SetTimer(Timer::Pause, pause) => Some(*pause),
            _ => None,
        });
        if pause.is_some() {
            (state, actions) = state.step(Event::TimerFired(Timer::Pause));
        }
        pauses.push(pause.unwrap_or_default().as_secs());
        assert_eq!(started(&actions).attempt, attempt);
        assert_eq!(started(&actions).reason.as_deref(), Some("WorkerFailed Root"));
    }
    assert_eq!(pauses, [0, 1, 2, 4]);
    // A new checkpoint resets the number of restarts and the pause ...
    let (next, actions) = state.clone().step(ended(0, killed(), Some(480)));
    assert_eq!((started(&actions).attempt, started(&actions).checkpoint), (2, Some(480)));
    // ... but the same checkpoint does so only once.
    let (next, _) = next.step(ended(0, killed(), Some(480)));
    let (next, actions) = next.step(Event::TimerFired(Timer::Pause));
    assert_eq!(started(&actions).attempt, 3);
    drop(next);
    assert_eq!(finished(&state.step(ended(0, killed(), None)).1), ExitCode::WorkerFailed);
}

#[test]
fn a_failure_that_no_restart_fixes_ends_the_run() {
    for code in [ExitCode::Spec, ExitCode::NonFinite, ExitCode::Internal, ExitCode::Io] {
        let end = failure(code, Attribution::Root, false);
        assert_eq!(finished(&after(limits(1, 1, 9), 1, &[ended(0, end, Some(5))]).1), code);
    }
}

#[test]
fn the_root_cause_is_blamed_and_not_its_consequence() {
    let consequence = || failure(ExitCode::Collective, Attribution::Consequence, true);
    let (state, actions) = after(limits(2, 2, 0), 2, &[ended(0, consequence(), None)]);
    assert_eq!(actions[0], Action::Recall { member: 1, how: Recall::TakeDown });
    let (_, actions) = state.clone().step(ended(1, killed(), None));
    assert_eq!(finished(&actions), ExitCode::WorkerFailed);
    // A node that vanishes explains the consequence, too.
    let (_, actions) = state.clone().step(Event::Lost(1));
    let Some(Action::Finish { failure: Some(f), .. }) = actions.last() else { panic!("{actions:?}") };
    assert_eq!(f.message, "node 1 (host1) was lost: the connection to its supervisor broke");
    // A bug on one node prevents a restart even if another node failed with a signal.
    let bug = failure(ExitCode::Internal, Attribution::Root, false);
    let (state, _) = after(limits(2, 2, 5), 2, &[ended(0, killed(), None)]);
    assert_eq!(finished(&state.step(ended(1, bug, None)).1), ExitCode::Internal);
}

/// A rank that hangs on one node is detected first by another node: its own node is recalled before it has noticed.
#[test]
fn a_rank_that_hangs_is_blamed_though_another_node_noticed_first() {
    let report = |code, attribution, rank: usize, message: &str| {
        let failure = NodeFailure { code, ..NodeFailure::new(FailureCause::Other, attribution, message) };
        NodeEnd::Failed(NodeFailure { retry: true, rank: Some(rank), ..failure })
    };
    let consequence =
        || report(ExitCode::Collective, Attribution::Consequence, 5, "rank 1: rank 5 is silent\n\nplaces");
    let hung = |rank: usize| {
        let text = format!("rank {rank} had to be killed\n\nits log");
        report(ExitCode::WorkerFailed, Attribution::Unresponsive, rank, &text)
    };
    let blamed = "rank 5 had to be killed; rank 1: rank 5 is silent\n\nits log";
    // A rank of the third node was only busy for longer than a recall waits.
    let mut ends = [(0, consequence()), (1, hung(3)), (2, hung(5))];
    for turn in 0..6 {
        ends.swap(turn % 2, 2);
        let events: Vec<Event> = ends.iter().map(|(node, end)| ended(*node, end.clone(), None)).collect();
        let (_, actions) = after(limits(3, 3, 0), 3, &events);
        let Some(Action::Finish { code, failure: Some(f) }) = actions.last() else { panic!("{actions:?}") };
        assert_eq!((*code, f.message.as_str()), (ExitCode::Collective, blamed), "{events:?}");
    }
    // A heavier failure takes precedence: a lost node, the peers' reports, a root cause.
    let (state, _) = after(limits(3, 3, 0), 3, &[ended(0, consequence(), None), ended(1, hung(3), None)]);
    let (_, actions) = state.clone().step(Event::Lost(2));
    assert_eq!(finished(&actions), ExitCode::WorkerFailed);
    let Some(Action::Finish { failure: Some(f), .. }) = actions.last() else { panic!("{actions:?}") };
    assert!(f.message.starts_with("node 2 (host2) was lost"), "{f:?}");
    assert_eq!(finished(&state.step(ended(2, killed(), None)).1), ExitCode::WorkerFailed);
    // It is to blame even though no rank lost it, because no end was requested ...
    let late = Event::TimerFired(Timer::Report);
    let (state, _) = after(limits(2, 2, 0), 2, &[ended(0, NodeEnd::Stopped, None), late.clone()]);
    assert_eq!(finished(&state.step(ended(1, hung(3), None)).1), ExitCode::WorkerFailed);
    // ... and the run was not done, which happens on all ranks together.
    let (state, _) = after(limits(2, 2, 0), 2, &[ended(0, NodeEnd::Done, None), late]);
    assert_eq!(finished(&state.step(ended(1, hung(3), None)).1), ExitCode::Done);
    // It is not to blame if an end was requested.
    let at_once = Event::StopRequested { member: 0, at_once: true };
    let (state, _) = after(limits(2, 2, 0), 2, &[stop(0), at_once, ended(0, NodeEnd::Stopped, None)]);
    assert_eq!(finished(&state.step(ended(1, hung(3), None)).1), ExitCode::Stopped);
}

#[test]
fn a_lost_node_is_waited_for_and_may_come_back() {
    let (state, actions) = after(limits(2, 2, 3), 2, &[Event::Lost(1)]);
    assert_eq!(actions[0], Action::Recall { member: 0, how: Recall::TakeDown });
    let (state, actions) = state.step(ended(0, NodeEnd::Stopped, Some(3)));
    assert!(!actions.iter().any(|a| matches!(a, Action::Start(_) | Action::Finish { .. })), "{actions:?}");
    let (_, gone) = state.clone().step(Event::TimerFired(Timer::Join));
    assert_eq!(finished(&gone), ExitCode::WorkerFailed);
    let (_, actions) = state.step(joined(9, Some(1)));
    assert_eq!((started(&actions).number, started(&actions).attempt), (2, 2));
    assert_eq!(started(&actions).nodes, [(0, 2), (9, 2)]);
}

#[test]
fn a_claimed_node_rank_is_rejected() {
    let again =
        |host: &str| Event::Joined { member: 5, seat: Some(1), host: host.into(), nproc: 2, generation: 4 };
    let (state, actions) = after(limits(2, 2, 3), 2, &[again("host1")]);
    assert!(matches!(&actions[..], [Action::Refuse { member: 5, later: true, .. }]), "{actions:?}");
    let (_, actions) = state.clone().step(again("other"));
    assert!(
        matches!(&actions[..], [Action::Refuse { later: false, why, .. }] if why.contains("both claim node rank 1"))
    );
    // Once the former connection has ended, it gets the seat; the numbers of generations continue.
    let (state, _) = state.step(Event::Lost(1));
    let (state, _) = state.step(ended(0, NodeEnd::Stopped, None));
    let (_, actions) = state.step(again("host1"));
    assert_eq!((started(&actions).number, &started(&actions).nodes[..]), (5, &[(0, 2), (5, 2)][..]));
}

#[test]
fn stopping_before_training_is_not_a_failure() {
    let consequence = failure(ExitCode::Collective, Attribution::Consequence, true);
    // A third node joins while the ranks of two meet: one stops, the other loses its peer.
    let (state, _) = after(limits(1, 3, 0), 2, &[Event::TimerFired(Timer::Settle), joined(2, None)]);
    let (state, _) = state.step(ended(0, NodeEnd::Stopped, None));
    let (_, actions) = state.step(ended(1, consequence.clone(), None));
    assert_eq!((started(&actions).nodes.len(), started(&actions).attempt), (3, 1));
    // The same when a stop of the run is requested.
    let (state, _) = after(limits(2, 2, 0), 2, &[stop(0), ended(0, NodeEnd::Stopped, None)]);
    assert_eq!(finished(&state.step(ended(1, consequence.clone(), None)).1), ExitCode::Stopped);
    // The same for an immediate end: no rank is to blame.
    let at_once = Event::StopRequested { member: 0, at_once: true };
    let (state, actions) = after(limits(2, 2, 0), 2, &[stop(0), at_once]);
    assert_eq!(actions[..2], [0, 1].map(|member| Action::Recall { member, how: Recall::Kill }));
    let (state, _) = state.step(ended(1, consequence, None));
    assert_eq!(finished(&state.step(ended(0, NodeEnd::Stopped, None)).1), ExitCode::Stopped);
}

#[test]
fn a_recalled_node_may_take_as_long_as_its_workers_and_a_second_signal_does_not_wait() {
    let limits = Limits { shutdown: Duration::from_secs(40), ..limits(2, 2, 0) };
    let longest = |actions: &[Action]| {
        actions.iter().find_map(|action| match action {
            Action::SetTimer(Timer::Report, time) => Some(*time),
            _ => None,
        })
    };
    let (state, actions) = after(limits, 2, &[stop(0)]);
    assert_eq!(longest(&actions), Some(limits.grace + limits.report));
    let (state, actions) = state.step(ended(0, killed(), None));
    assert_eq!(actions[0], Action::Recall { member: 1, how: Recall::TakeDown });
    assert_eq!(longest(&actions), Some(limits.shutdown + limits.report));
    let of_three = Limits { nodes: NodeRange { min: 3, max: 3 }, ..limits };
    let (_, actions) = after(of_three, 3, &[ended(0, killed(), None), ended(1, NodeEnd::Stopped, None)]);
    assert_eq!(longest(&actions), None, "the report of one node does not shorten the time of another");
    let (_, actions) = state.step(Event::StopRequested { member: 1, at_once: true });
    assert_eq!(actions[0], Action::Recall { member: 1, how: Recall::Kill });
    assert_eq!(longest(&actions), Some(limits.report));
}

#[test]
fn nodes_may_join_and_leave_within_the_range() {
    let (state, actions) = after(limits(1, 3, 0), 2, &[]);
    assert_eq!(actions, [Action::SetTimer(Timer::Settle, Duration::from_secs(2))]);
    let (state, actions) = state.step(Event::TimerFired(Timer::Settle));
    assert_eq!(started(&actions).nodes.len(), 2);
    // When a third node joins, the others save first.
    let (state, actions) = state.step(joined(2, None));
    let save = |member| Action::Recall { member, how: Recall::Save };
    assert_eq!(actions[..2], [save(0), save(1)]);
    let (state, _) = state.step(ended(0, NodeEnd::Stopped, Some(7)));
    let (state, actions) = state.step(ended(1, NodeEnd::Stopped, None));
    assert_eq!((started(&actions).nodes.len(), started(&actions).attempt), (3, 1));
    assert_eq!(started(&actions).reason.as_deref(), Some("node 2 (host2) joined"));
    // When a node is asked to leave, all save, and it leaves.
    let (state, _) = state.step(stop(1));
    let (state, _) = state.step(ended(0, NodeEnd::Stopped, Some(9)));
    let (state, _) = state.step(ended(1, NodeEnd::Stopped, None));
    let (state, actions) = state.step(ended(2, NodeEnd::Stopped, None));
    assert_eq!(actions[0], Action::Dismiss(1));
    assert_eq!(started(&actions).nodes, [(0, 2), (2, 2)]);
    // When a node vanishes, the other one continues alone; that does not count against the restarts, of which there are 0.
    let (state, _) = state.step(Event::Lost(2));
    let (state, _) =
        state.step(ended(0, failure(ExitCode::Collective, Attribution::Consequence, true), Some(9)));
    let (state, actions) = state.step(Event::TimerFired(Timer::Settle));
    assert_eq!((&started(&actions).nodes[..], started(&actions).attempt), (&[(0, 2)][..], 1));
    // When the last node is asked to stop, the run ends.
    let (state, _) = state.step(stop(0));
    assert_eq!(finished(&state.step(ended(0, NodeEnd::Stopped, None)).1), ExitCode::Stopped);
}

#[test]
fn a_stop_ends_a_fixed_run_on_all_nodes() {
    let (state, actions) = after(limits(2, 2, 3), 2, &[stop(1)]);
    assert_eq!(actions[..2], [0, 1].map(|member| Action::Recall { member, how: Recall::Save }));
    // A failure in the meantime does not cause a restart.
    let (state, _) = state.step(ended(0, killed(), None));
    assert_eq!(finished(&state.step(ended(1, NodeEnd::Stopped, None)).1), ExitCode::WorkerFailed);
    let (_, actions) = after(limits(2, 2, 3), 1, &[stop(0)]);
    assert_eq!(finished(&actions), ExitCode::Stopped);
}

#[test]
fn a_node_that_never_reports_counts_as_lost() {
    let late = Event::TimerFired(Timer::Report);
    let (state, _) = after(limits(2, 2, 0), 2, &[ended(0, killed(), None)]);
    let (_, actions) = state.step(late.clone());
    assert_eq!(actions[0], Action::CutOff(1));
    assert_eq!(finished(&actions), ExitCode::WorkerFailed);
    // If there may have been something to save, it is taken down first.
    for end in [NodeEnd::Done, NodeEnd::Stopped] {
        let (state, actions) = after(limits(2, 2, 0), 2, &[ended(0, end, None)]);
        assert!(actions.iter().any(|a| matches!(a, Action::SetTimer(Timer::Report, _))), "{actions:?}");
        let (state, actions) = state.step(late.clone());
        assert_eq!(actions[0], Action::Recall { member: 1, how: Recall::TakeDown });
        let (_, actions) = state.step(late.clone());
        assert_eq!(actions[0], Action::CutOff(1));
    }
}

#[test]
fn the_time_to_report_of_one_generation_does_not_end_the_next() {
    let (state, actions) = after(limits(2, 2, 3), 2, &[ended(1, killed(), None), ended(0, killed(), None)]);
    assert_eq!(started(&actions).number, 2);
    let (next, actions) = state.clone().step(Event::TimerFired(Timer::Report));
    assert_eq!((next, actions), (state, Vec::new()));
}

#[test]
fn a_finished_run_is_done_even_if_a_node_is_silent_or_lost_later() {
    let late = Event::TimerFired(Timer::Report);
    let stages = [late.clone(), late, Event::Lost(1)];
    for restarts in [0, 3] {
        let (state, _) = after(limits(2, 2, restarts), 2, &[ended(0, NodeEnd::Done, Some(9))]);
        // Its supervisor is stopped, or its host is gone.
        let (_, actions) = stages[..2].iter().fold((state.clone(), vec![]), |(s, _), e| s.step(e.clone()));
        assert_eq!(finished(&actions), ExitCode::Done);
        let (_, actions) = state.clone().step(stages[2].clone());
        assert_eq!(finished(&actions), ExitCode::Done);
        // A rank that lost one of the ranks that exited with 0 was still in the middle of the run.
        for attribution in [Attribution::Consequence, Attribution::Blamed] {
            let left = failure(ExitCode::Collective, attribution, false);
            assert_eq!(finished(&state.clone().step(ended(1, left, None)).1), ExitCode::Collective);
        }
        // A rank that failed independently is reported, even at its very end.
        let (_, actions) = state.step(ended(1, failure(ExitCode::Internal, Attribution::Root, false), None));
        assert_eq!(finished(&actions), ExitCode::Internal);
    }
}

#[test]
fn programs_whose_ranks_end_independently_are_not_hurried_and_not_done_without_all() {
    let limits = Limits { together: false, ..limits(2, 2, 0) };
    let (state, actions) = after(limits, 2, &[ended(1, NodeEnd::Done, None)]);
    assert_eq!(actions, []);
    assert_eq!(finished(&state.clone().step(ended(0, NodeEnd::Done, None)).1), ExitCode::Done);
    assert_eq!(finished(&state.clone().step(ended(0, NodeEnd::Stopped, None)).1), ExitCode::Stopped);
    let unresponsive = failure(ExitCode::WorkerFailed, Attribution::Unresponsive, true);
    assert_eq!(finished(&state.step(ended(0, unresponsive, None)).1), ExitCode::WorkerFailed);
    let (state, _) = after(limits, 2, &[ended(0, NodeEnd::Done, None)]);
    assert_eq!(finished(&state.step(Event::Lost(1)).1), ExitCode::WorkerFailed);
}
