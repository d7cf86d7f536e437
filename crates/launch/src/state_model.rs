//! Random histories of the state machine: in any order of events the run ends, and with the right verdict.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Move {
    Answer(bool),
    Exit(usize, WorkerStatus),
    Stop,
    Recall(Recall),
    Fire(usize),
    /// An event that is impossible at this point.
    Spurious(Event),
}

fn status() -> impl Strategy<Value = WorkerStatus> {
    let code =
        prop::sample::select(vec![0, 0, 0, 75, 75, 91, 91, 93, 78, 74, 92, 70, 69, 1, 3, 101, 143, 137]);
    let signal = prop::sample::select(vec![9, 15, 11, 6, 2, 10]);
    prop_oneof![
        3 => code.prop_map(WorkerStatus::Exited),
        1 => signal.prop_map(|signal| WorkerStatus::Signaled { signal, core_dumped: false }),
    ]
}

fn exit(rank: usize, status: WorkerStatus) -> Event {
    Event::WorkerExited { rank, status, evidence: Evidence::default() }
}

fn moves() -> impl Strategy<Value = Move> {
    // `Abandon` is not among them: out of turn it claims that the kernel can't end a process, which another test covers.
    let timer = prop::sample::select(vec![
        Timer::RootCause,
        Timer::Grace,
        Timer::StopDeadline,
        Timer::Debounce,
        Timer::Last,
    ]);
    prop_oneof![
        4 => prop::bool::weighted(0.97).prop_map(Move::Answer),
        4 => (0usize..8, status()).prop_map(|(rank, status)| Move::Exit(rank, status)),
        1 => Just(Move::Stop),
        1 => prop::sample::select(vec![Recall::Save, Recall::TakeDown, Recall::Kill]).prop_map(Move::Recall),
        2 => (0usize..8).prop_map(Move::Fire),
        1 => (0usize..9, status()).prop_map(|(rank, status)| Move::Spurious(exit(rank, status))),
        1 => (0usize..9).prop_map(|rank| Move::Spurious(Event::WorkerStarted(rank))),
        1 => timer.prop_map(|timer| Move::Spurious(Event::TimerFired(timer))),
    ]
}

/// The operating system as seen by the state machine.
struct World {
    state: Option<GenerationState>,
    spawning: Vec<usize>,
    alive: Vec<usize>,
    signalled: Vec<usize>,
    killed: Vec<usize>,
    started: Vec<usize>,
    timers: Vec<Timer>,
    finished: Option<Verdict>,
    stops: usize,
    /// Exit codes of workers that failed before any worker was asked to end.
    failed: Vec<WorkerStatus>,
    /// The time limit for workers still running after another was done has passed.
    waited_out: bool,
}

impl World {
    fn new(world: usize) -> Self {
        let mut w = World {
            state: Some(GenerationState::new(world, Policy::default())),
            spawning: vec![],
            alive: vec![],
            signalled: vec![],
            killed: vec![],
            started: vec![],
            timers: vec![],
            finished: None,
            stops: 0,
            failed: vec![],
            waited_out: false,
        };
        w.feed(Event::Start);
        w
    }

    fn feed(&mut self, event: Event) {
        self.waited_out |= event == Event::TimerFired(Timer::Last);
        let (state, actions) = self.state.take().expect("put back below").step(event);
        self.state = Some(state);
        for action in actions {
            assert!(self.finished.is_none(), "{action:?} after Finish");
            match action {
                Action::Spawn(rank) => {
                    assert!(!self.started.contains(&rank), "rank {rank} is spawned twice");
                    assert!(self.spawning.is_empty() && self.signalled.is_empty() && self.killed.is_empty());
                    let fine = |s: &WorkerStatus| matches!(s, WorkerStatus::Exited(0 | 75));
                    assert!(self.stops == 0 && self.failed.iter().all(fine), "a start in a run that ends");
                    self.started.push(rank);
                    self.spawning.push(rank);
                }
                Action::Terminate(rank) | Action::TakeDown(rank) => {
                    assert!(self.alive.contains(&rank), "rank {rank} is asked to end, but is not alive");
                    assert!(!self.signalled.contains(&rank), "rank {rank} is asked twice");
                    self.signalled.push(rank);
                }
                Action::Kill(rank) => {
                    assert!(self.alive.contains(&rank) && !self.killed.contains(&rank));
                    self.killed.push(rank);
                }
                Action::SetTimer(timer, _) => {
                    self.timers.retain(|t| *t != timer);
                    self.timers.push(timer);
                }
                Action::Finish(verdict) => self.finished = Some(verdict),
            }
        }
    }

    fn exit(&mut self, rank: usize, status: WorkerStatus) {
        self.alive.retain(|r| *r != rank);
        if self.signalled.is_empty() && self.killed.is_empty() && self.stops == 0 {
            self.failed.push(status.clone());
        }
        self.feed(exit(rank, status));
    }

    fn answer(&mut self, ok: bool) {
        let Some(rank) = self.spawning.pop() else { return };
        if ok {
            self.alive.push(rank);
            self.feed(Event::WorkerStarted(rank));
        } else {
            if self.signalled.is_empty() && self.killed.is_empty() && self.stops == 0 {
                self.failed.push(WorkerStatus::NotStarted("no".into()));
            }
            self.feed(Event::WorkerSpawnFailed { rank, error: "no".into() });
        }
    }

    fn play(&mut self, m: Move) {
        match m {
            Move::Answer(ok) => self.answer(ok),
            Move::Exit(pick, status) if !self.alive.is_empty() => {
                self.exit(self.alive[pick % self.alive.len()], status)
            }
            Move::Stop => {
                self.stops += usize::from(self.finished.is_none());
                self.feed(Event::StopRequested);
            }
            Move::Recall(recall) => {
                self.stops += usize::from(self.finished.is_none());
                self.feed(Event::Recalled(recall));
            }
            // The kernel ends every process that is killed; `Abandon` is for when it can't, and has its own test.
            Move::Fire(pick) if !self.timers.is_empty() => {
                let timer = self.timers.remove(pick % self.timers.len());
                if timer == Timer::Abandon {
                    self.bury_killed();
                } else {
                    self.feed(Event::TimerFired(timer));
                }
            }
            Move::Spurious(Event::WorkerExited { rank, .. }) if self.alive.contains(&rank) => {}
            Move::Spurious(Event::WorkerStarted(rank)) if self.spawning.contains(&rank) => {}
            Move::Spurious(Event::TimerFired(timer)) if self.timers.contains(&timer) => {}
            Move::Spurious(event) => self.feed(event),
            _ => {}
        }
    }

    fn bury_killed(&mut self) {
        for rank in self.killed.clone() {
            if self.alive.contains(&rank) {
                self.exit(rank, WorkerStatus::Signaled { signal: 9, core_dumped: false });
            }
        }
    }

    /// From here on everything proceeds normally: starts are answered, timers fire, killed workers die, workers that
    /// received no request exit with 0. Workers that were only asked to end do not.
    fn drain(&mut self) {
        for _ in 0..100 {
            if self.finished.is_some() {
                return;
            }
            if !self.spawning.is_empty() {
                self.answer(true);
            } else if let Some(timer) = self.timers.pop().filter(|t| *t != Timer::Abandon) {
                self.feed(Event::TimerFired(timer));
            } else if !self.killed.is_empty() {
                self.bury_killed();
            } else if let Some(rank) = self.alive.iter().find(|r| !self.signalled.contains(r)).copied() {
                self.exit(rank, WorkerStatus::Exited(0));
            }
        }
        panic!("the run does not end: {:?}", self.state);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_sequence_of_events_ends_all_workers_and_keeps_exit_codes(
        world in 1usize..6,
        moves in prop::collection::vec(moves(), 0..40),
    ) {
        let mut w = World::new(world);
        for m in moves {
            w.play(m);
        }
        w.drain();
        let verdict = w.finished.expect("drained");
        prop_assert!(w.alive.is_empty() && w.spawning.is_empty(), "left behind: {:?}", w.alive);
        let state = w.state.as_ref().expect("always put back");
        // Every start has a recorded end.
        prop_assert_eq!(state.ends().iter().flatten().count(), w.started.len());
        let own_stop = |s: &WorkerStatus| matches!(s, WorkerStatus::Signaled { signal: 15 | 2 | 10, .. });
        let excused = |s: &WorkerStatus| {
            matches!(s, WorkerStatus::Exited(0 | 75 | 91 | 93)) || (w.stops > 0 && own_stop(s))
        };
        let roots: Vec<_> = w.failed.iter().filter(|s| !excused(s)).collect();
        if let Some(root) = roots.first() {
            let (requested, evidence) = (Requested::Nothing, Evidence::default());
            let end = End { status: (*root).clone(), requested, order: 0, overdue: false, evidence };
            let own = matches!(verdict, Verdict::Failed { cause, .. } if cause == end.cause());
            prop_assert!(own, "a worker's own failure is the run's: {verdict:?}, {end:?}");
        }
        if w.failed.iter().any(|s| matches!(s, WorkerStatus::Exited(91 | 93))) && w.stops == 0 {
            prop_assert!(verdict.culprit().is_some(), "{:?}", verdict);
        }
        if verdict == Verdict::Done {
            let done = |e: &End| e.status == WorkerStatus::Exited(0);
            // A worker that hangs at its end is killed when another one is done.
            let left = |e: &End| w.waited_out && e.requested != Requested::Nothing && state.class(e) == Class::OnRequest;
            prop_assert!(state.ends().iter().flatten().any(|e| done(e)));
            prop_assert!(state.ends().iter().all(|e| e.is_some_and(|e| done(e) || left(e))));
        }
        if verdict == Verdict::Stopped {
            let stopped = state.ends().iter().flatten().any(|e| e.status == WorkerStatus::Exited(75));
            prop_assert!(w.stops > 0 || stopped);
        }
    }
}
