//! The supervisor's reaction to each event of its workers, as a pure state machine.
//!
//! [`GenerationState::step`] maps a state and an [`Event`] to the next state and the [`Action`]s to carry out; it does no I/O
//! and reads no clock (time comes in as [`Event::TimerFired`]). One `State` is one generation of workers on one node:
//! it starts them one after another, and ends with exactly one [`Action::Finish`] when all of them have ended. What
//! follows a finished generation is decided by the caller, for all nodes. Ranks are local ranks here.
//!
//! The policy: the first worker that fails takes the run down. The others are notified at once over their control pipes,
//! and get SIGKILL after [`Policy::grace`]. A worker that only lost its peers (exit 91 or 93) is a consequence of another
//! worker's death, which the kernel may report later than the consequence; so after a consequence the supervisor first waits
//! [`Policy::root_cause_wait`] for the root cause. A worker that is still running [`Policy::last`] after another one was
//! done hangs at its end, and is killed; the run counts as done. The first stop signal is forwarded once, and the
//! workers save and exit with 75; the second one kills them at once.

use std::time::Duration;

use super::config::LaunchConfig;
use super::failure::Evidence;
use super::generation::Recall;
use super::stop::DEBOUNCE;
use super::verdict::{self, Class, End, Requested, Verdict, WorkerStatus};

/// The supervisor's time limits. `root_cause_wait + grace`, the time from a failure to the end of the run, is under 2 s by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// From a consequence (exit 91 or 93) to taking the run down without a root cause.
    pub root_cause_wait: Duration,
    /// From telling a worker that the run is taken down to SIGKILL: `launch.shutdown_timeout`.
    pub grace: Duration,
    /// From a stop request to SIGKILL, for workers that neither finish their step nor save; also if the run fails meanwhile.
    pub stop_deadline: Duration,
    /// Stop signals within this time of the first are the same request: `timeout` signals both the process and its group.
    pub debounce: Duration,
    /// From SIGKILL until a process that the kernel can't end (uninterruptible I/O) is abandoned.
    pub abandon: Duration,
    /// From a worker's exit with 0, which all workers reach together, to the end of those still running; `Duration::MAX` if
    /// workers end independently.
    pub last: Duration,
    /// Workers that are asked to stop save before; for messages.
    pub saves: bool,
    /// A worker that ends with 75 unasked has stopped on a request that it got itself. Otherwise it has failed.
    pub stops_unasked: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            root_cause_wait: Duration::from_millis(250),
            grace: *LaunchConfig::default().shutdown_timeout,
            stop_deadline: Duration::from_secs(600),
            debounce: DEBOUNCE,
            abandon: Duration::from_secs(5),
            last: Duration::from_secs(30),
            saves: true,
            stops_unasked: true,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The first event of a generation.
    Start,
    WorkerStarted(usize),
    WorkerSpawnFailed {
        rank: usize,
        error: String,
    },
    WorkerExited {
        rank: usize,
        status: WorkerStatus,
        evidence: Evidence,
    },
    /// A stop signal reached the supervisor.
    StopRequested,
    /// The controller ends the generation.
    Recalled(Recall),
    TimerFired(Timer),
}

/// Setting a timer that is running restarts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Timer {
    RootCause,
    Grace,
    StopDeadline,
    Debounce,
    Abandon,
    Last,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Answered by `WorkerStarted` or `WorkerSpawnFailed`.
    Spawn(usize),
    /// SIGTERM: save and stop.
    Terminate(usize),
    /// The run has failed or is ended at once; nothing is saved. Never sent as a signal, which would mean
    /// [`Action::Terminate`].
    TakeDown(usize),
    /// SIGKILL to the worker and its children.
    Kill(usize),
    SetTimer(Timer, Duration),
    Finish(Verdict),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Worker {
    Waiting,
    /// `Spawn` was sent and not answered yet.
    Spawning,
    Running {
        requested: Requested,
        overdue: bool,
    },
    Ended(End),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting,
    Running,
    /// A stop signal was forwarded; the workers are saving.
    Stopping,
    /// A consequence was seen; its root cause may still follow.
    Suspecting,
    /// The workers were notified that the run has failed.
    TakingDown,
    /// SIGKILL was sent.
    Killing,
    Finished,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenerationState {
    policy: Policy,
    phase: Phase,
    workers: Vec<Worker>,
    ended: usize,
    /// A stop was requested by a signal or a recall.
    stop_requested: bool,
    /// A stop was requested by a signal, or a kill by the controller; the next signal means "at once".
    signalled: bool,
    /// No worker had failed when the stop was requested.
    stopped_unharmed: bool,
    debouncing: bool,
    /// The controller took the generation down.
    recalled_at_once: bool,
}

impl GenerationState {
    /// A generation of `workers` processes (at least 1), none of them started.
    pub fn new(workers: usize, policy: Policy) -> Self {
        Self {
            policy,
            phase: Phase::Starting,
            workers: vec![Worker::Waiting; workers],
            ended: 0,
            stop_requested: false,
            signalled: false,
            stopped_unharmed: false,
            debouncing: false,
            recalled_at_once: false,
        }
    }

    /// Impossible events (an exit of a worker that is not running, a timer that was never set) change nothing.
    pub fn step(mut self, event: Event) -> (Self, Vec<Action>) {
        let mut actions = Vec::new();
        if self.phase != Phase::Finished {
            self.apply(event, &mut actions);
            self.finish_if_all_gone(&mut actions);
        }
        (self, actions)
    }

    /// Each rank's end; `None` for a rank that was never started or is still running.
    pub fn ends(&self) -> Vec<Option<&End>> {
        self.workers.iter().map(|w| if let Worker::Ended(end) = w { Some(end) } else { None }).collect()
    }

    /// The class of `end`, given what is known now.
    pub fn class(&self, end: &End) -> Class {
        verdict::class(end, self.stop_requested, self.policy.stops_unasked)
    }

    fn apply(&mut self, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Start => self.spawn_next(actions),
            Event::WorkerStarted(rank) => self.started(rank, actions),
            Event::WorkerSpawnFailed { rank, error } => {
                if self.workers.get(rank) == Some(&Worker::Spawning) {
                    self.ended(rank, WorkerStatus::NotStarted(error), Evidence::default(), actions);
                }
            }
            Event::WorkerExited { rank, status, evidence } => {
                if matches!(self.workers.get(rank), Some(Worker::Running { .. })) {
                    self.ended(rank, status, evidence, actions);
                }
            }
            Event::StopRequested => self.stop(actions),
            Event::Recalled(recall) => self.recalled(recall, actions),
            Event::TimerFired(timer) => self.timer(timer, actions),
        }
    }

    /// Starts one worker at a time, so that nothing is started after a failed start.
    fn spawn_next(&mut self, actions: &mut Vec<Action>) {
        if self.phase != Phase::Starting || self.workers.contains(&Worker::Spawning) {
            return;
        }
        match self.workers.iter().position(|w| *w == Worker::Waiting) {
            Some(rank) => {
                self.workers[rank] = Worker::Spawning;
                actions.push(Action::Spawn(rank));
            }
            None => self.phase = Phase::Running,
        }
    }

    fn started(&mut self, rank: usize, actions: &mut Vec<Action>) {
        if self.workers.get(rank) != Some(&Worker::Spawning) {
            return;
        }
        let requested = match self.phase {
            Phase::TakingDown => Requested::Stop,
            Phase::Killing => Requested::Kill,
            _ => Requested::Nothing,
        };
        self.workers[rank] = Worker::Running { requested, overdue: false };
        match requested {
            Requested::Nothing => self.spawn_next(actions),
            Requested::Stop => actions.push(Action::TakeDown(rank)),
            Requested::Kill => actions.push(Action::Kill(rank)),
        }
    }

    fn ended(&mut self, rank: usize, status: WorkerStatus, evidence: Evidence, actions: &mut Vec<Action>) {
        let (requested, overdue) = match self.workers[rank] {
            Worker::Running { requested, overdue } => (requested, overdue),
            _ => (Requested::Nothing, false),
        };
        let end = End { status, requested, order: self.ended, overdue, evidence };
        let class = self.class(&end);
        self.workers[rank] = Worker::Ended(end);
        self.ended += 1;
        let untouched = matches!(self.phase, Phase::Starting | Phase::Running | Phase::Stopping);
        match class {
            Class::Done => actions.push(Action::SetTimer(Timer::Last, self.policy.last)),
            Class::Failed(cause) if untouched && cause.is_consequence() => {
                self.phase = Phase::Suspecting;
                actions.push(Action::SetTimer(Timer::RootCause, self.policy.root_cause_wait));
            }
            Class::Failed(cause) if cause.is_consequence() => {}
            Class::Failed(_) | Class::OnRequest | Class::OnRequestAfterLoss
                if untouched || self.phase == Phase::Suspecting =>
            {
                self.take_down(actions)
            }
            _ => {}
        }
    }

    fn stop(&mut self, actions: &mut Vec<Action>) {
        if self.signalled {
            if !self.debouncing {
                self.kill_all(actions);
            }
            return;
        }
        self.signalled = true;
        self.debouncing = true;
        actions.push(Action::SetTimer(Timer::Debounce, self.policy.debounce));
        // With several nodes signalled, a recall may come first.
        if !self.stop_requested {
            self.save_and_stop(actions);
        }
    }

    fn recalled(&mut self, recall: Recall, actions: &mut Vec<Action>) {
        if recall == Recall::Save {
            if !self.stop_requested {
                self.save_and_stop(actions);
            }
            return;
        }
        if matches!(self.phase, Phase::Starting | Phase::Running | Phase::Stopping) {
            self.stopped_unharmed = true;
        }
        self.stop_requested = true;
        if recall == Recall::Kill {
            self.signalled = true;
            self.kill_all(actions);
            return;
        }
        self.recalled_at_once = true;
        if !matches!(self.phase, Phase::TakingDown | Phase::Killing) {
            self.take_down(actions);
        }
    }

    fn save_and_stop(&mut self, actions: &mut Vec<Action>) {
        self.stop_requested = true;
        self.stopped_unharmed = matches!(self.phase, Phase::Starting | Phase::Running);
        match self.phase {
            // Running workers wait for peers that will not start; nothing is trained or saved yet.
            Phase::Starting => self.take_down(actions),
            Phase::Running => {
                self.phase = Phase::Stopping;
                self.ask_all(Requested::Stop, Action::Terminate, actions);
            }
            // The run is already ending.
            Phase::Stopping | Phase::Suspecting | Phase::TakingDown => {}
            Phase::Killing | Phase::Finished => return,
        }
        actions.push(Action::SetTimer(Timer::StopDeadline, self.policy.stop_deadline));
    }

    fn timer(&mut self, timer: Timer, actions: &mut Vec<Action>) {
        match (timer, self.phase) {
            (Timer::Debounce, _) => self.debouncing = false,
            (Timer::RootCause, Phase::Suspecting) => self.take_down(actions),
            (Timer::Grace, Phase::TakingDown) => self.kill_all(actions),
            (Timer::Last, Phase::Running) if self.any_done() => self.kill_all(actions),
            (Timer::StopDeadline, Phase::Stopping) => {
                for worker in &mut self.workers {
                    if let Worker::Running { overdue, .. } = worker {
                        *overdue = true;
                    }
                }
                self.kill_all(actions);
            }
            (Timer::StopDeadline, Phase::Suspecting | Phase::TakingDown) => self.kill_all(actions),
            // A process whose start is not yet answered must be killed first.
            (Timer::Abandon, Phase::Killing) if self.workers.contains(&Worker::Spawning) => {
                actions.push(Action::SetTimer(Timer::Abandon, self.policy.abandon));
            }
            (Timer::Abandon, Phase::Killing) => self.finish(actions),
            _ => {}
        }
    }

    fn take_down(&mut self, actions: &mut Vec<Action>) {
        self.phase = Phase::TakingDown;
        self.ask_all(Requested::Stop, Action::TakeDown, actions);
        actions.push(Action::SetTimer(Timer::Grace, self.policy.grace));
    }

    fn kill_all(&mut self, actions: &mut Vec<Action>) {
        if self.phase != Phase::Killing {
            self.phase = Phase::Killing;
            self.ask_all(Requested::Kill, Action::Kill, actions);
            actions.push(Action::SetTimer(Timer::Abandon, self.policy.abandon));
        }
    }

    /// Sends `action` to each worker once. Workers that were asked to save and stop end on their own if the run
    /// fails meanwhile.
    fn ask_all(&mut self, what: Requested, action: fn(usize) -> Action, actions: &mut Vec<Action>) {
        for (rank, worker) in self.workers.iter_mut().enumerate() {
            if let Worker::Running { requested, .. } = worker
                && *requested < what
            {
                *requested = what;
                actions.push(action(rank));
            }
        }
    }

    fn any_done(&self) -> bool {
        self.ends().into_iter().flatten().any(|end| self.class(end) == Class::Done)
    }

    fn finish_if_all_gone(&mut self, actions: &mut Vec<Action>) {
        let alive = self.workers.iter().any(|w| matches!(w, Worker::Spawning | Worker::Running { .. }));
        if !alive && self.phase != Phase::Starting && self.phase != Phase::Finished {
            self.finish(actions);
        }
    }

    fn finish(&mut self, actions: &mut Vec<Action>) {
        self.phase = Phase::Finished;
        let run = verdict::VerdictInput {
            workers: self.workers.len(),
            ends: self.ends().into_iter().enumerate().filter_map(|(rank, end)| Some((rank, end?))).collect(),
            overdue: self.workers.iter().position(|w| matches!(w, Worker::Running { overdue: true, .. })),
            stop_requested: self.stop_requested,
            stops_unasked: self.policy.stops_unasked,
            stopped_unharmed: self.stopped_unharmed,
            // After a second signal, workers are killed without time to end.
            recalled_at_once: self.recalled_at_once && !self.signalled,
        };
        actions.push(Action::Finish(run.verdict()));
    }
}

#[cfg(test)]
#[path = "state_model.rs"]
mod model;

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
