//! Random histories of nodes that join, vanish, fail and are stopped, and the properties of each.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

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
    let attribution = prop::sample::select(vec![
        Attribution::Consequence,
        Attribution::Unresponsive,
        Attribution::Blamed,
        Attribution::Root,
        Attribution::Root,
    ]);
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
        4 => (code, attribution).prop_map(|((code, retry), attribution)| {
            failure(code, attribution, retry || attribution < Attribution::LostNode)
        }),
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

/// The nodes and the clock as seen by the state machine.
struct World {
    state: Option<PolicyState>,
    limits: Limits,
    next: Member,
    /// Connected supervisors.
    connected: BTreeSet<Member>,
    /// Nodes whose workers of the current generation may still be running.
    alive: BTreeSet<Member>,
    /// The last recall that each of those nodes has received.
    recalled: BTreeMap<Member, Recall>,
    asked_to_save: bool,
    timers: Vec<Timer>,
    generation: u64,
    checkpoint: u64,
    /// Restarts after failures since the last new checkpoint.
    restarts: u32,
    /// The failures of the current generation.
    failures: Vec<NodeFailure>,
    lost: usize,
    ends: Vec<NodeEnd>,
    stops: usize,
    /// A stop between generations, before a restart.
    stopped_between: bool,
    finished: Option<(ExitCode, Option<NodeFailure>)>,
}

impl World {
    fn new(limits: Limits) -> Self {
        let (state, actions) = PolicyState::new(limits);
        let mut world = World {
            state: Some(state),
            limits,
            next: 0,
            connected: BTreeSet::new(),
            alive: BTreeSet::new(),
            recalled: BTreeMap::new(),
            asked_to_save: false,
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
                Action::Recall { member, how } => {
                    assert!(self.alive.contains(&member), "recall of member {member}, which runs nothing");
                    self.asked_to_save |= how == Recall::Save;
                    let before = self.recalled.insert(member, how);
                    assert!(before < Some(how), "member {member} is recalled: {before:?}, then {how:?}");
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
        let own = self.failures.iter().any(|f| f.attribution > Attribution::LostNode);
        let restart = (self.lost > 0 && !within) || own || (self.lost == 0 && !self.failures.is_empty());
        if restart && !self.left_behind() {
            self.restarts += 1;
            assert!(self.restarts <= self.limits.max_restarts, "the budget is overrun");
        }
        assert!(
            self.failures.iter().all(|f| f.retry || f.attribution < Attribution::Root),
            "retried: {:?}",
            self.failures
        );
        self.generation = g.number;
        self.failures.clear();
        self.ends.clear();
        self.recalled.clear();
        self.asked_to_save = false;
        self.lost = 0;
        for (member, _) in g.nodes {
            assert!(self.connected.contains(&member), "member {member} is not connected");
            self.alive.insert(member);
        }
    }

    /// The only failures are of ranks that lost peers which had been asked to stop and did.
    fn left_behind(&self) -> bool {
        let consequences =
            self.lost == 0 && self.failures.iter().all(|f| f.attribution < Attribution::LostNode);
        self.asked_to_save && consequences && self.ends.contains(&NodeEnd::Stopped)
    }

    /// Whether a stop concerns the run or only one node is visible only afterwards; this relies on the state
    /// machine's own flag.
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
            // The state machine runs on node 0, so that node can't be lost.
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

    /// From here on everything proceeds normally: recalled nodes stop, others are done, timers fire.
    fn drain(&mut self) {
        for _ in 0..200 {
            if self.finished.is_some() {
                return;
            }
            if let Some(member) = self.alive.first().copied() {
                let recalled = self.recalled.contains_key(&member);
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
    fn every_sequence_of_events_ends_within_the_restart_limit(
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
        let fatal: Vec<&NodeFailure> = w.failures.iter().filter(|f| !f.retry && f.attribution == Attribution::Root).collect();
        if let Some(first) = fatal.first() {
            prop_assert_eq!(code, first.code, "the code of the first cause that no restart mends");
        } else if w.stopped_between && code == ExitCode::Stopped {
            prop_assert!(w.alive.is_empty());
        } else if let Some(first) = w.failures.iter().find(|f| f.attribution == Attribution::Root) {
            prop_assert_eq!(code, first.code);
        } else if w.ends.contains(&NodeEnd::Done) && w.failures.iter().all(|f| f.attribution == Attribution::Unresponsive) {
            prop_assert_eq!(code, ExitCode::Done, "the end is the same for all");
        } else if !w.failures.is_empty() || w.lost > 0 {
            prop_assert!(!matches!(code, ExitCode::Done), "{:?} of {:?}", code, w.failures);
        }
        if code == ExitCode::Done {
            prop_assert!(w.ends.contains(&NodeEnd::Done));
        }
        if code == ExitCode::Stopped {
            prop_assert!(w.stops > 0 || w.ends.contains(&NodeEnd::Stopped));
        }
    }
}
