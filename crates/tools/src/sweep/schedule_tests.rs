use super::*;
use proptest::prelude::*;

const RULES: Rules = Rules { rungs: 1, eta: 3, prefers_larger: false, parallel: 2, fail_fast: false };

fn scheduled(rules: Rules, children: usize) -> Schedule {
    Schedule::new(rules, vec![Child::new(None); children])
}

fn states(schedule: &Schedule) -> Vec<ChildState> {
    schedule.children().iter().map(|child| child.state).collect()
}

/// Runs everything to its end, one child after the other; `value` is that of a child on a rung.
fn run(schedule: &mut Schedule, value: impl Fn(usize, usize) -> Ended) -> Vec<(usize, usize)> {
    let mut started = Vec::new();
    while let Some((at, _)) = schedule.start() {
        let rung = schedule.children()[at].rung;
        started.push((at, rung));
        schedule.ended(at, value(at, rung));
    }
    started
}

#[test]
fn as_many_run_as_there_are_slots() {
    let mut schedule = scheduled(RULES, 3);
    assert_eq!((schedule.start(), schedule.start(), schedule.start()), (Some((0, 0)), Some((1, 1)), None));
    schedule.ended(0, Ended::Done(Some(1.0)));
    assert_eq!((schedule.start(), schedule.start()), (Some((2, 0)), None));
    schedule.ended(2, Ended::Done(Some(2.0)));
    schedule.ended(1, Ended::Done(None));
    assert!(schedule.is_over());
    assert_eq!(schedule.ranking(), [0, 2, 1], "what was not measured is last");
}

#[test]
fn the_best_of_each_rung_go_on() {
    let mut schedule = scheduled(Rules { rungs: 3, ..RULES }, 9);
    let started = run(&mut schedule, |at, _| Ended::Done(Some(10.0 - at as f64)));
    let on = |rung: usize| started.iter().filter(|it| it.1 == rung).map(|it| it.0).collect::<Vec<_>>();
    assert_eq!((on(0), on(1), on(2)), ((0..9).collect(), vec![6, 7, 8], vec![8]));
    assert_eq!(schedule.children()[8].values, [Some(2.0); 3]);
    assert_eq!(schedule.ranking()[..4], [8, 7, 6, 5]);
    assert_eq!(states(&schedule)[7..], [ChildState::Dropped, ChildState::Done]);

    let mut larger = scheduled(Rules { rungs: 2, prefers_larger: true, ..RULES }, 3);
    let started = run(&mut larger, |at, _| Ended::Done(Some(10.0 - at as f64)));
    assert_eq!(started.last(), Some(&(0, 1)));
}

#[test]
fn a_child_that_fails_ends_nothing_but_itself() {
    let mut schedule = scheduled(Rules { rungs: 2, ..RULES }, 3);
    let ended = |at, rung| match (at, rung) {
        (0, 0) => Ended::Failed(Some(92)),
        (1, _) => Ended::Done(Some(f64::NAN)),
        _ => Ended::Done(Some(5.0)),
    };
    let started = run(&mut schedule, ended);
    assert_eq!(started, [(0, 0), (1, 0), (2, 0), (2, 1)]);
    assert_eq!(states(&schedule), [ChildState::Failed, ChildState::Dropped, ChildState::Done]);
    assert_eq!(schedule.children()[0].exit_code, Some(92));
}

#[test]
fn with_fail_fast_the_first_failure_ends_the_sweep() {
    let mut schedule = scheduled(Rules { fail_fast: true, ..RULES }, 4);
    schedule.start();
    schedule.start();
    schedule.ended(0, Ended::Failed(Some(78)));
    assert!(schedule.stopping() && schedule.start().is_none() && !schedule.is_over());
    schedule.ended(1, Ended::Stopped);
    assert!(schedule.is_over());
    assert_eq!(
        states(&schedule),
        [ChildState::Failed, ChildState::Waiting, ChildState::Waiting, ChildState::Waiting]
    );
}

#[test]
fn a_stop_that_nobody_asked_for_is_a_failure() {
    let mut schedule = scheduled(RULES, 1);
    schedule.start();
    schedule.ended(0, Ended::Stopped);
    assert_eq!((states(&schedule), schedule.is_over()), (vec![ChildState::Failed], true));
}

#[test]
fn a_child_waits_for_the_one_whose_end_it_continues() {
    let children = vec![Child::new(Some(2)), Child::new(None), Child::new(None)];
    let mut schedule = Schedule::new(RULES, children);
    assert_eq!((schedule.start(), schedule.start()), (Some((1, 0)), Some((2, 1))));
    schedule.ended(1, Ended::Done(None));
    assert_eq!(schedule.start(), None);
    schedule.ended(2, Ended::Failed(None));
    assert_eq!(schedule.start(), Some((0, 0)), "without it, too");
}

#[test]
fn what_failed_is_tried_again_unless_the_others_went_on() {
    let child = |state, rung| Child { state, rung, exit_code: Some(90), ..Child::new(None) };
    let again = Schedule::new(
        RULES,
        vec![child(ChildState::Failed, 0), child(ChildState::Done, 0), child(ChildState::Running, 0)],
    );
    assert_eq!(states(&again), [ChildState::Waiting, ChildState::Done, ChildState::Waiting]);
    let left = Schedule::new(
        Rules { rungs: 2, ..RULES },
        vec![child(ChildState::Failed, 0), child(ChildState::Running, 1), child(ChildState::Dropped, 0)],
    );
    assert_eq!(states(&left), [ChildState::Failed, ChildState::Waiting, ChildState::Dropped]);
}

#[test]
fn rungs_grow_by_eta_up_to_the_whole_run() {
    assert_eq!(rungs(1, 3, 9), [1, 3, 9]);
    assert_eq!(rungs(1, 3, 10), [1, 3, 9, 10]);
    assert_eq!(rungs(4, 2, 4), [4]);
    assert_eq!(rungs(7, 2, 4), [4]);
    assert_eq!((kept(27, 3, 0), kept(27, 3, 2), kept(10, 3, 1), kept(10, 3, 9)), (27, 3, 3, 1));
}

proptest! {
    /// Ends of any kind, with a kill of the whole sweep in between: no child runs twice on a rung that it has done, the slots are
    /// never exceeded, and the sweep comes to its end.
    #[test]
    fn every_history_comes_to_its_end(
        count in 1usize..12, parallel in 1usize..4, rungs in 1usize..4, eta in 2usize..4,
        ends in proptest::collection::vec((0usize..4, 0u8..8, any::<bool>()), 0..60),
    ) {
        let rules = Rules { rungs, eta, prefers_larger: false, parallel, fail_fast: false };
        let mut schedule = scheduled(rules, count);
        let mut done = std::collections::BTreeSet::new();
        let end = |schedule: &mut Schedule, at: usize, kind: u8, done: &mut std::collections::BTreeSet<(usize, usize)>| {
            let rung = schedule.children()[at].rung;
            match kind {
                0 => schedule.ended(at, Ended::Failed(None)),
                _ => {
                    assert!(done.insert((at, rung)), "child {at} is done with rung {rung} twice");
                    schedule.ended(at, Ended::Done(Some(f64::from(kind))));
                }
            }
        };
        for (which, kind, killed) in ends {
            while schedule.start().is_some() {}
            let running: Vec<usize> = schedule.running().collect();
            prop_assert!(running.len() <= parallel);
            if killed {
                schedule = Schedule::new(rules, schedule.children().to_vec());
            } else if let Some(at) = running.get(which % running.len().max(1)) {
                end(&mut schedule, *at, kind, &mut done);
            }
        }
        while !schedule.is_over() {
            while schedule.start().is_some() {}
            let at = schedule.running().next().expect("what is not over runs");
            end(&mut schedule, at, 1, &mut done);
        }
        prop_assert!(!schedule.has(ChildState::Waiting) && !schedule.has(ChildState::Running));
        let last = schedule.children().iter().filter(|c| c.rung + 1 == rungs && c.state == ChildState::Done).count();
        prop_assert!(last <= kept(count, eta, rungs - 1));
    }
}

#[test]
fn a_sweep_that_stops_promotes_nobody_before_what_failed_was_tried_again() {
    let rules = Rules { rungs: 2, parallel: 1, fail_fast: true, ..RULES };
    let mut schedule = scheduled(rules, 3);
    let ended = |at, _| if at == 2 { Ended::Failed(Some(92)) } else { Ended::Done(Some(1.0)) };
    assert_eq!(run(&mut schedule, ended), [(0, 0), (1, 0), (2, 0)]);
    assert!(schedule.is_over() && schedule.is_unfinished());
    let mut again = Schedule::new(rules, schedule.children().to_vec());
    assert_eq!(run(&mut again, |at, _| Ended::Done(Some(-(at as f64)))), [(2, 0), (2, 1)]);
    assert!(!again.is_unfinished());
    // A stop behind the last run of a rung.
    let mut stopped = scheduled(Rules { fail_fast: false, ..rules }, 1);
    assert_eq!(stopped.start(), Some((0, 0)));
    stopped.stop();
    stopped.ended(0, Ended::Done(Some(1.0)));
    assert!(stopped.is_over() && stopped.is_unfinished());
    assert_eq!(Schedule::new(rules, stopped.children().to_vec()).start(), Some((0, 0)));
}
