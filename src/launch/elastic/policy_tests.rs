use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn limits(min: usize, max: usize, max_restarts: u32) -> Limits {
    Limits { max_restarts, ..Limits::new(NodeRange { min, max }) }
}

fn failure(code: ExitCode, weight: Weight, retry: bool) -> NodeEnd {
    NodeEnd::Failed(Failure { code, weight, retry, message: format!("{code:?} {weight:?}"), hint: None })
}

fn killed() -> NodeEnd {
    failure(ExitCode::WorkerFailed, Weight::Root, true)
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
fn after(limits: Limits, nodes: u64, events: &[Event]) -> (State, Vec<Action>) {
    let joins = (0..nodes).map(|m| joined(m, Some(m as usize)));
    joins.chain(events.iter().cloned()).fold(State::new(limits), |(state, _), event| state.step(event))
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
fn a_fixed_number_of_nodes_waits_for_all_and_says_who_is_missing() {
    let (state, actions) = after(limits(3, 3, 0), 2, &[]);
    assert_eq!(actions, []);
    let (_, actions) = state.clone().step(Event::TimerFired(Timer::Join));
    let Some(Action::Finish { code: ExitCode::Rendezvous, failure: Some(f) }) = actions.last() else {
        panic!("{actions:?}");
    };
    assert_eq!(f.message, "2 of 3 nodes came together in time; missing: node 2");
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
    // A checkpoint refills the budget, and the pauses start anew ...
    let (next, actions) = state.clone().step(ended(0, killed(), Some(480)));
    assert_eq!((started(&actions).attempt, started(&actions).checkpoint), (2, Some(480)));
    // ... but the same one does not do it twice.
    let (next, _) = next.step(ended(0, killed(), Some(480)));
    let (next, actions) = next.step(Event::TimerFired(Timer::Pause));
    assert_eq!(started(&actions).attempt, 3);
    drop(next);
    assert_eq!(finished(&state.step(ended(0, killed(), None)).1), ExitCode::WorkerFailed);
}

#[test]
fn what_another_attempt_cannot_mend_ends_the_run() {
    for code in [ExitCode::Spec, ExitCode::NonFinite, ExitCode::Internal, ExitCode::Checkpoint] {
        let end = failure(code, Weight::Root, false);
        assert_eq!(finished(&after(limits(1, 1, 9), 1, &[ended(0, end, Some(5))]).1), code);
    }
}

#[test]
fn the_cause_is_blamed_and_not_its_echo() {
    let echo = || failure(ExitCode::Collective, Weight::Echo, true);
    let (state, actions) = after(limits(2, 2, 0), 2, &[ended(0, echo(), None)]);
    assert_eq!(actions[0], Action::Recall { member: 1, save: false });
    let (_, actions) = state.clone().step(ended(1, killed(), None));
    assert_eq!(finished(&actions), ExitCode::WorkerFailed);
    // A node that vanishes explains the echo, too.
    let (_, actions) = state.clone().step(Event::Lost(1));
    let Some(Action::Finish { failure: Some(f), .. }) = actions.last() else { panic!("{actions:?}") };
    assert_eq!(f.message, "node 1 (host1) was lost: the connection to its supervisor broke");
    // A bug on one node is not retried because a signal on another would be.
    let bug = failure(ExitCode::Internal, Weight::Root, false);
    let (state, _) = after(limits(2, 2, 5), 2, &[ended(0, killed(), None)]);
    assert_eq!(finished(&state.step(ended(1, bug, None)).1), ExitCode::Internal);
}

#[test]
fn a_lost_node_is_waited_for_and_may_come_back() {
    let (state, actions) = after(limits(2, 2, 3), 2, &[Event::Lost(1)]);
    assert_eq!(actions[0], Action::Recall { member: 0, save: false });
    let (state, actions) = state.step(ended(0, NodeEnd::Stopped, Some(3)));
    assert!(!actions.iter().any(|a| matches!(a, Action::Start(_) | Action::Finish { .. })), "{actions:?}");
    let (_, gone) = state.clone().step(Event::TimerFired(Timer::Join));
    assert_eq!(finished(&gone), ExitCode::WorkerFailed);
    let (_, actions) = state.step(joined(9, Some(1)));
    assert_eq!((started(&actions).number, started(&actions).attempt), (2, 2));
    assert_eq!(started(&actions).nodes, [(0, 2), (9, 2)]);
}

#[test]
fn a_seat_that_is_taken_is_refused_for_now_or_for_good() {
    let again =
        |host: &str| Event::Joined { member: 5, seat: Some(1), host: host.into(), nproc: 2, generation: 4 };
    let (state, actions) = after(limits(2, 2, 3), 2, &[again("host1")]);
    assert!(matches!(&actions[..], [Action::Refuse { member: 5, later: true, .. }]), "{actions:?}");
    let (_, actions) = state.clone().step(again("other"));
    assert!(
        matches!(&actions[..], [Action::Refuse { later: false, why, .. }] if why.contains("both claim node rank 1"))
    );
    // Once the former one is gone, it may have the seat; generations are counted on.
    let (state, _) = state.step(Event::Lost(1));
    let (state, _) = state.step(ended(0, NodeEnd::Stopped, None));
    let (_, actions) = state.step(again("host1"));
    assert_eq!((started(&actions).number, &started(&actions).nodes[..]), (5, &[(0, 2), (5, 2)][..]));
}

#[test]
fn who_stops_before_training_leaves_echoes_and_no_failure() {
    let echo = failure(ExitCode::Collective, Weight::Echo, true);
    // Two nodes are joined by a third while their ranks meet: one stops, the other loses it.
    let (state, _) = after(limits(1, 3, 0), 2, &[Event::TimerFired(Timer::Settle), joined(2, None)]);
    let (state, _) = state.step(ended(0, NodeEnd::Stopped, None));
    let (_, actions) = state.step(ended(1, echo.clone(), None));
    assert_eq!((started(&actions).nodes.len(), started(&actions).attempt), (3, 1));
    // The same when the run is to stop.
    let (state, _) = after(limits(2, 2, 0), 2, &[stop(0), ended(0, NodeEnd::Stopped, None)]);
    assert_eq!(finished(&state.step(ended(1, echo.clone(), None)).1), ExitCode::Stopped);
    // And at once: nobody is to blame.
    let at_once = Event::StopRequested { member: 0, at_once: true };
    let (state, actions) = after(limits(2, 2, 0), 2, &[stop(0), at_once]);
    assert_eq!(actions[..2], [0, 1].map(|member| Action::Recall { member, save: false }));
    let (state, _) = state.step(ended(1, echo, None));
    assert_eq!(finished(&state.step(ended(0, NodeEnd::Stopped, None)).1), ExitCode::Stopped);
}

#[test]
fn nodes_may_join_and_leave_within_the_range() {
    let (state, actions) = after(limits(1, 3, 0), 2, &[]);
    assert_eq!(actions, [Action::SetTimer(Timer::Settle, Duration::from_secs(2))]);
    let (state, actions) = state.step(Event::TimerFired(Timer::Settle));
    assert_eq!(started(&actions).nodes.len(), 2);
    // A third one: the others save first.
    let (state, actions) = state.step(joined(2, None));
    let save = |member| Action::Recall { member, save: true };
    assert_eq!(actions[..2], [save(0), save(1)]);
    let (state, _) = state.step(ended(0, NodeEnd::Stopped, Some(7)));
    let (state, actions) = state.step(ended(1, NodeEnd::Stopped, None));
    assert_eq!((started(&actions).nodes.len(), started(&actions).attempt), (3, 1));
    assert_eq!(started(&actions).reason.as_deref(), Some("node 2 (host2) joined"));
    // One is asked to leave: all save, and it is let go.
    let (state, _) = state.step(stop(1));
    let (state, _) = state.step(ended(0, NodeEnd::Stopped, Some(9)));
    let (state, _) = state.step(ended(1, NodeEnd::Stopped, None));
    let (state, actions) = state.step(ended(2, NodeEnd::Stopped, None));
    assert_eq!(actions[0], Action::Dismiss(1));
    assert_eq!(started(&actions).nodes, [(0, 2), (2, 2)]);
    // One vanishes: the other goes on alone, without a restart of the budget, which is 0.
    let (state, _) = state.step(Event::Lost(2));
    let (state, _) = state.step(ended(0, failure(ExitCode::Collective, Weight::Echo, true), Some(9)));
    let (state, actions) = state.step(Event::TimerFired(Timer::Settle));
    assert_eq!((&started(&actions).nodes[..], started(&actions).attempt), (&[(0, 2)][..], 1));
    // The last one is asked to stop: that is the run's end.
    let (state, _) = state.step(stop(0));
    assert_eq!(finished(&state.step(ended(0, NodeEnd::Stopped, None)).1), ExitCode::Stopped);
}

#[test]
fn a_stop_ends_a_fixed_run_on_all_nodes() {
    let (state, actions) = after(limits(2, 2, 3), 2, &[stop(1)]);
    assert_eq!(actions[..2], [0, 1].map(|member| Action::Recall { member, save: true }));
    // A failure meanwhile is no reason to start again.
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
    // Where there may have been something to save, it is taken down first.
    for end in [NodeEnd::Done, NodeEnd::Stopped] {
        let (state, actions) = after(limits(2, 2, 0), 2, &[ended(0, end, None)]);
        assert!(actions.iter().any(|a| matches!(a, Action::SetTimer(Timer::Report, _))), "{actions:?}");
        let (state, actions) = state.step(late.clone());
        assert_eq!(actions[0], Action::Recall { member: 1, save: false });
        assert_eq!(state.step(late.clone()).1[0], Action::CutOff(1));
    }
}

#[derive(Clone, Debug)]
enum Move {
    Join(Option<usize>),
    Lose(usize),
    End(usize, NodeEnd, bool),
    Stop(usize),
    Fire(usize),
    Spurious(Event),
}

fn ends() -> impl Strategy<Value = NodeEnd> {
    let weight = prop::sample::select(vec![Weight::Echo, Weight::Blamed, Weight::Root, Weight::Root]);
    let code = prop::sample::select(vec![
        (ExitCode::WorkerFailed, true),
        (ExitCode::WorkerFailed, true),
        (ExitCode::Collective, true),
        (ExitCode::Spec, false),
        (ExitCode::NonFinite, false),
    ]);
    prop_oneof![
        1 => Just(NodeEnd::Done),
        2 => Just(NodeEnd::Stopped),
        4 => (code, weight).prop_map(|((code, retry), weight)| failure(code, weight, retry || weight == Weight::Echo)),
    ]
}

fn moves() -> impl Strategy<Value = Move> {
    let timer = prop::sample::select(vec![Timer::Join, Timer::Settle, Timer::Pause, Timer::Report]);
    prop_oneof![
        3 => prop::option::of(0usize..5).prop_map(Move::Join),
        1 => (0usize..8).prop_map(Move::Lose),
        6 => (0usize..8, ends(), any::<bool>()).prop_map(|(n, e, p)| Move::End(n, e, p)),
        1 => (0usize..8).prop_map(Move::Stop),
        3 => (0usize..8).prop_map(Move::Fire),
        1 => (0u64..20, ends()).prop_map(|(m, e)| Move::Spurious(ended(m, e, None))),
        1 => (90u64..99).prop_map(|m| Move::Spurious(Event::Lost(m))),
        1 => timer.prop_map(|t| Move::Spurious(Event::TimerFired(t))),
    ]
}

/// The nodes and the clock, as far as the machine sees them.
struct World {
    state: Option<State>,
    limits: Limits,
    next: Member,
    /// Connected supervisors.
    connected: BTreeSet<Member>,
    /// Nodes whose workers of the current generation are not known to be gone.
    alive: BTreeSet<Member>,
    /// Their recalls.
    recalled: BTreeSet<(Member, bool)>,
    timers: Vec<Timer>,
    generation: u64,
    checkpoint: u64,
    /// Starts that made good a failure, since the last new checkpoint.
    restarts: u32,
    /// Of the current generation.
    failures: Vec<Failure>,
    lost: usize,
    ends: Vec<NodeEnd>,
    stops: usize,
    /// A stop between generations ends a run that was to be started again.
    stopped_between: bool,
    finished: Option<(ExitCode, Option<Failure>)>,
}

impl World {
    fn new(limits: Limits) -> Self {
        let (state, actions) = State::new(limits);
        let mut world = World {
            state: Some(state),
            limits,
            next: 0,
            connected: BTreeSet::new(),
            alive: BTreeSet::new(),
            recalled: BTreeSet::new(),
            timers: vec![],
            generation: 0,
            checkpoint: 0,
            restarts: 0,
            failures: vec![],
            lost: 0,
            ends: vec![],
            stops: 0,
            stopped_between: false,
            finished: None,
        };
        world.carry_out(actions);
        world.join(Some(0));
        world
    }

    fn feed(&mut self, event: Event) {
        let (state, actions) = self.state.take().expect("put back below").step(event);
        self.state = Some(state);
        self.carry_out(actions);
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            assert!(self.finished.is_none(), "{action:?} after Finish");
            match action {
                Action::Start(g) => self.start(g),
                Action::Recall { member, save } => {
                    assert!(self.alive.contains(&member), "recall of member {member}, which runs nothing");
                    assert!(self.recalled.insert((member, save)), "member {member} is recalled twice");
                    assert!(
                        !save || !self.recalled.contains(&(member, false)),
                        "a save after the taking down"
                    );
                }
                Action::Refuse { member, .. } | Action::Dismiss(member) | Action::CutOff(member) => {
                    assert!(self.connected.remove(&member), "member {member} is not there to be sent away");
                    // A supervisor that is cut off takes its workers down; nothing waits for their end.
                    if self.alive.remove(&member) {
                        self.lost += 1;
                    }
                }
                Action::Announce { .. } => assert!(self.alive.is_empty()),
                Action::SetTimer(timer, _) => {
                    self.timers.retain(|t| *t != timer);
                    self.timers.push(timer);
                }
                Action::Finish { code, failure } => {
                    assert!(self.alive.is_empty(), "finished while {:?} run", self.alive);
                    self.finished = Some((code, failure));
                }
            }
        }
    }

    fn start(&mut self, g: Generation) {
        assert!(self.alive.is_empty(), "two generations: {:?} still run", self.alive);
        assert_eq!(self.stops_of_the_run(), 0, "a start after a stop");
        assert!(g.number > self.generation);
        let n = g.nodes.len();
        assert!((self.limits.nodes.min..=self.limits.nodes.max).contains(&n), "{n} nodes");
        let within = self.limits.nodes.is_elastic();
        let own = self.failures.iter().any(|f| f.weight > Weight::LostNode);
        let restart = (self.lost > 0 && !within) || own || (self.lost == 0 && !self.failures.is_empty());
        if restart && !self.left_behind() {
            self.restarts += 1;
            assert!(self.restarts <= self.limits.max_restarts, "the budget is overrun");
        }
        assert!(
            self.failures.iter().all(|f| f.retry || f.weight < Weight::Root),
            "retried: {:?}",
            self.failures
        );
        self.generation = g.number;
        self.failures.clear();
        self.ends.clear();
        self.recalled.clear();
        self.lost = 0;
        for (member, _) in g.nodes {
            assert!(self.connected.contains(&member), "member {member} is not connected");
            self.alive.insert(member);
        }
    }

    /// Nothing failed but ranks that lost those which were asked to stop and did.
    fn left_behind(&self) -> bool {
        let asked = self.recalled.iter().any(|(_, save)| *save);
        let echoes = self.lost == 0 && self.failures.iter().all(|f| f.weight == Weight::Echo);
        asked && echoes && self.ends.contains(&NodeEnd::Stopped)
    }

    /// Stops that are not one node's leave are known by what follows; the machine's own word is taken for which it is.
    fn stops_of_the_run(&self) -> usize {
        usize::from(self.state.as_ref().is_some_and(|s| s.stopping))
    }

    fn join(&mut self, seat: Option<usize>) {
        let member = self.next;
        self.next += 1;
        self.connected.insert(member);
        self.feed(joined(member, seat));
    }

    fn lose(&mut self, member: Member) {
        self.connected.remove(&member);
        if self.alive.remove(&member) {
            self.lost += 1;
        }
        self.feed(Event::Lost(member));
    }

    fn end(&mut self, member: Member, end: NodeEnd, progress: bool) {
        self.alive.remove(&member);
        if progress {
            self.checkpoint += 1;
            self.restarts = 0;
        }
        if let NodeEnd::Failed(f) = &end {
            self.failures.push(f.clone());
        }
        self.ends.push(end.clone());
        let checkpoint = Some(self.checkpoint).filter(|c| *c > 0);
        self.feed(ended(member, end, checkpoint));
    }

    fn pick(set: &BTreeSet<Member>, n: usize) -> Option<Member> {
        set.iter().nth(n % set.len().max(1)).copied()
    }

    fn play(&mut self, m: Move) {
        match m {
            Move::Join(seat) => self.join(seat.filter(|s| *s > 0)),
            // Node 0 is where the machine is.
            Move::Lose(n) => match Self::pick(&self.connected, n) {
                Some(member) if member != 0 => self.lose(member),
                _ => {}
            },
            Move::End(n, end, progress) => {
                if let Some(member) = Self::pick(&self.alive, n) {
                    self.end(member, end, progress);
                }
            }
            Move::Stop(n) => {
                if let Some(member) = Self::pick(&self.connected, n) {
                    self.stops += usize::from(self.finished.is_none());
                    self.stopped_between |= self.alive.is_empty() && self.finished.is_none();
                    self.feed(Event::StopRequested { member, at_once: self.stops > 1 });
                }
            }
            Move::Fire(n) if !self.timers.is_empty() => {
                let timer = self.timers.remove(n % self.timers.len());
                self.feed(Event::TimerFired(timer));
            }
            Move::Spurious(Event::Ended { member, .. }) if self.alive.contains(&member) => {}
            Move::Spurious(Event::TimerFired(timer)) if self.timers.contains(&timer) => {}
            Move::Spurious(event) => self.feed(event),
            Move::Fire(_) => {}
        }
    }

    /// From here on the world is fair: recalled nodes stop, others are done, timers fire.
    fn drain(&mut self) {
        for _ in 0..200 {
            if self.finished.is_some() {
                return;
            }
            if let Some(member) = self.alive.first().copied() {
                let recalled = self.recalled.iter().any(|(m, _)| *m == member);
                self.end(member, if recalled { NodeEnd::Stopped } else { NodeEnd::Done }, false);
            } else if let Some(timer) = self.timers.pop() {
                self.feed(Event::TimerFired(timer));
            } else {
                break;
            }
        }
        panic!("the run does not end: {:?}", self.state);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_events_leaves_a_generation_overruns_the_budget_or_loses_a_code(
        min in 1usize..4,
        more in 0usize..3,
        max_restarts in 0u32..4,
        moves in prop::collection::vec(moves(), 0..60),
    ) {
        let mut w = World::new(limits(min, min + more, max_restarts));
        for m in moves {
            w.play(m);
        }
        w.drain();
        let (code, failure) = w.finished.expect("drained");
        prop_assert_eq!(failure.is_some(), !matches!(code, ExitCode::Done | ExitCode::Stopped));
        let fatal: Vec<&Failure> = w.failures.iter().filter(|f| !f.retry && f.weight == Weight::Root).collect();
        if let Some(first) = fatal.first() {
            prop_assert_eq!(code, first.code, "the code of the first cause that no restart mends");
        } else if w.stopped_between && code == ExitCode::Stopped {
            prop_assert!(w.alive.is_empty());
        } else if let Some(first) = w.failures.iter().find(|f| f.weight == Weight::Root) {
            prop_assert_eq!(code, first.code);
        } else if !w.failures.is_empty() || w.lost > 0 {
            prop_assert!(!matches!(code, ExitCode::Done), "{:?} of {:?}", code, w.failures);
        }
        if code == ExitCode::Done {
            prop_assert!(w.ends.iter().all(|e| *e == NodeEnd::Done));
        }
        if code == ExitCode::Stopped {
            prop_assert!(w.stops > 0 || w.ends.contains(&NodeEnd::Stopped));
        }
    }
}
