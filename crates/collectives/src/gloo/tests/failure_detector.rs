//! The group as the control group of another engine: messages between calls, and which rank is named as late.

use super::*;
use crate::{FailureDetector, Phase, StepPhase, Wait};

const CALL: &str = "all_reduce #5 by another";
const PATIENCE: Duration = Duration::from_secs(1);

/// Listens like a watchdog, until the group fails.
fn listen(g: &GlooGroup) -> CommError {
    let mut failure = None;
    until("a failure", || {
        failure = g.poll().err();
        failure.is_some()
    });
    failure.unwrap()
}

/// Rank 0 finds call 5 overdue. The others have made as many calls as `made` says, and listen; one with None does nothing.
fn overdue(transport: Transport, made: [Option<u64>; 3]) -> Vec<Option<CommError>> {
    let live = made.iter().flatten().count();
    let groups = form_counting(transport, 3, AMPLE, live - 1);
    let together = Barrier::new(live);
    on_ranks(&groups, |g| {
        let calls = made[g.rank()]?;
        g.set_calls_made(calls);
        g.note(StepPhase { step: calls, phase: Phase::Data });
        together.wait();
        Some(if g.rank() == 0 { g.report_overdue(CALL, 5, PATIENCE) } else { listen(g) })
    })
}

#[test]
fn a_rank_that_exits_between_two_calls_is_detected() {
    for transport in TRANSPORTS {
        let together = Barrier::new(3);
        let results = on_ranks(form(transport, 3, AMPLE), |g| {
            all_reduce(&g, 10).unwrap();
            together.wait();
            if g.rank() == 1 {
                kill(g);
                return None;
            }
            let error = listen(&g);
            assert_eq!(all_reduce(&g, 10), Err(error.clone()), "the next call has the same");
            Some(error)
        });
        for error in results.into_iter().flatten() {
            assert_error(&error, CommErrorKind::PeerLost, Some(1), &[]);
        }
    }
}

#[test]
fn polling_does_not_affect_calls_and_a_goodbye_is_not_a_failure() {
    for transport in TRANSPORTS {
        on_ranks(form(transport, 3, AMPLE), |g| {
            for _ in 0..200 {
                g.poll().unwrap();
                all_reduce(&g, 10).unwrap();
                g.barrier(Wait::Deadline).unwrap();
                g.poll().unwrap();
            }
        });
    }
}

#[test]
fn the_rank_that_is_furthest_behind_is_named_by_all() {
    for transport in TRANSPORTS {
        for error in overdue(transport, [Some(5), Some(4), Some(3)]).into_iter().flatten() {
            let parts = [
                "all_reduce #5 by another did not complete within 1s (timeout): rank 0 is waiting for ranks 2 and 1 to make",
                "rank 1 has made call 4, step 4, phase data; rank 2 has made call 3, step 3, phase data",
            ];
            assert_error(&error, CommErrorKind::Timeout, Some(2), &parts);
        }
    }
}

#[test]
fn a_rank_that_does_not_answer_is_named_before_one_that_is_behind() {
    for transport in TRANSPORTS {
        for error in overdue(transport, [Some(5), Some(4), None]).into_iter().flatten() {
            let part = "rank 2 did not respond (probed by rank 0); rank 1 has made call 4";
            assert_error(&error, CommErrorKind::Timeout, Some(2), &[part]);
        }
    }
}

#[test]
fn no_rank_is_blamed_if_all_have_made_the_call() {
    for error in overdue(Transport::Auto, [Some(5), Some(5), Some(6)]).into_iter().flatten() {
        assert_error(&error, CommErrorKind::Timeout, None, &["all ranks respond and have made this call"]);
    }
}

#[test]
fn a_rank_that_left_early_is_blamed() {
    let results = on_ranks(form(Transport::Auto, 2, AMPLE), |g| {
        all_reduce(&g, 10).unwrap();
        (g.rank() == 0).then(|| {
            let departed = || g.engine.lock().unwrap().links[1].as_ref().unwrap().departed;
            until("a goodbye", || g.poll().is_ok() && departed());
            g.report_overdue(CALL, 5, PATIENCE)
        })
    });
    let error = results.into_iter().flatten().next().unwrap();
    assert_error(&error, CommErrorKind::PeerLost, Some(1), &["rank 1 left the process group"]);
}

/// A probe that arrived between two calls used to be lost if the watchdog read it, not the next call.
#[test]
fn a_probe_between_two_calls_is_answered_in_the_next_call() {
    on_ranks(TRANSPORTS, |transport| {
        let groups = form_counting(transport, 3, PATIENCE, 1);
        let results = on_ranks(&groups, |g| {
            let asked = || g.engine.lock().unwrap().links[0].as_ref().unwrap().probe_pending;
            match g.rank() {
                0 => {}
                1 => until("a question", || {
                    g.poll().unwrap();
                    asked()
                }),
                _ => return None,
            }
            Some(g.barrier(Wait::Deadline).unwrap_err())
        });
        for error in results.into_iter().flatten() {
            assert_error(&error, CommErrorKind::Timeout, Some(2), &["rank 2 did not respond"]);
        }
    });
}

/// Rank 0 finds call 5 overdue while another of its threads waits in a barrier. Returns its error and that of rank 1.
fn overdue_in_a_call(wait: Wait, time_limit: Duration) -> [CommError; 2] {
    let groups = form(Transport::Auto, 2, PATIENCE);
    let (waiter, other) = (&groups[0], &groups[1]);
    thread::scope(|scope| {
        let waits = scope.spawn(|| waiter.barrier(wait).unwrap_err());
        while waiter.history().pop().is_none() {
            thread::yield_now();
        }
        let error = waiter.report_overdue(CALL, 5, time_limit);
        assert_eq!(waits.join().unwrap(), error);
        [error, listen(other)]
    })
}

#[test]
fn a_call_that_another_thread_waits_in_has_its_own_deadline() {
    // The call's verdict is waited for, however late it is.
    for error in overdue_in_a_call(Wait::Deadline, AMPLE) {
        assert_error(&error, CommErrorKind::Timeout, Some(1), &["rank 1 did not respond"]);
    }
}

#[test]
fn a_call_without_a_deadline_that_another_thread_waits_in_ends_with_the_verdict() {
    for error in overdue_in_a_call(Wait::WhilePeersLive, PATIENCE) {
        let part = "by another did not complete within 1s (timeout) on rank 0";
        assert_error(&error, CommErrorKind::Timeout, None, &[part]);
    }
}
