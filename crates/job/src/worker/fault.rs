//! Fault injection: `DDP_RUN_FAULT="kill:rank=1,phase=forward,step=3"` makes one rank die, stop, exit, change a bit or write to
//! a full disk from a chosen point on, to test what a run on this machine or cluster survives. Without the variable nothing is changed.

use super::intercepted_group::{Intercept, InterceptedGroup};
use base::error::{Error, Result};
use collectives::{Call, Phase, ProcessGroup, StepPhase};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Names the fault.
pub const VARIABLE: &str = "DDP_RUN_FAULT";

/// What the rank does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAction {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
    Exit(u8),
    /// A bit of the rank's parameters changes, without an error: silent data corruption.
    Flip,
    /// From now on no file grows, as on a full disk.
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultPoint {
    /// Before the rendezvous.
    Connect,
    Phase(Phase),
    /// When this collective is called, so that the other ranks wait in it.
    Call(&'static str),
}

/// An injected fault; it occurs once, the first time that all conditions hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InjectedFault {
    action: FaultAction,
    rank: usize,
    point: FaultPoint,
    /// Completed optimizer steps; any number if not given.
    step: Option<u64>,
    /// The generation of workers, from 1; any if not given.
    generation: Option<u64>,
}

impl InjectedFault {
    /// The fault that the environment (`get`) requests in a run of `world_size` ranks, if any.
    ///
    /// Errors (exit 2): the value is malformed, or could never apply.
    pub fn from_env(get: &dyn Fn(&str) -> Option<String>, world_size: usize) -> Result<Option<Self>> {
        let Some(text) = get(VARIABLE).filter(|t| !t.is_empty()) else { return Ok(None) };
        let wrong = |why: String| {
            Error::usage(format!("{VARIABLE} is `{text}`: {why}"))
                .hint("example: `kill:rank=1,phase=forward,step=3`; unset it for a run without a fault")
        };
        let fault: Self = text.parse().map_err(wrong)?;
        if fault.rank >= world_size {
            return Err(wrong(format!(
                "rank {} is out of range: the run has {world_size} ranks",
                fault.rank
            )));
        }
        Ok(Some(fault))
    }

    /// Whether it applies to this generation of workers.
    pub fn is_due_in(&self, generation: u64) -> bool {
        self.generation.is_none_or(|g| g == generation)
    }

    /// Call it on `rank` before the rendezvous.
    pub fn at_connect(&self, rank: usize) {
        if rank == self.rank && self.point == FaultPoint::Connect {
            self.trigger("before the rendezvous");
        }
    }

    /// Wraps `group` so that the fault occurs in it, if it concerns this rank and has not occurred yet.
    pub fn arm(self, group: Arc<dyn ProcessGroup>) -> Arc<dyn ProcessGroup> {
        if group.rank() != self.rank || self.point == FaultPoint::Connect {
            return group;
        }
        Arc::new(InterceptedGroup::new(group, ArmedFault::new(self, Self::trigger)))
    }

    fn trigger(&self, place: &str) {
        tracing::warn!("{VARIABLE}: {:?} on purpose, {place}", self.action);
        match self.action {
            // Sent to this thread, so that it does not continue while another thread handles the signal.
            FaultAction::Kill => drop(signal_hook::low_level::raise(signal_hook::consts::SIGKILL)),
            FaultAction::Stop => drop(signal_hook::low_level::raise(signal_hook::consts::SIGSTOP)),
            FaultAction::Exit(code) => std::process::exit(code.into()),
            FaultAction::Flip => train::training::flip_a_bit(),
            FaultAction::Full => files_can_not_grow(),
        }
    }
}

impl FromStr for InjectedFault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (action, conditions) =
            text.split_once(':').ok_or("expected ACTION:rank=R,phase=P or ACTION:rank=R,phase=P,step=S")?;
        let action = match action.split_once('=') {
            None if action == "kill" => FaultAction::Kill,
            None if action == "stop" => FaultAction::Stop,
            None if action == "flip" => FaultAction::Flip,
            None if action == "full" => FaultAction::Full,
            Some(("exit", code)) => FaultAction::Exit(number("exit", code)?),
            _ => {
                let known = "`kill`, `stop`, `flip`, `full` or `exit=N`";
                return Err(format!("`{action}` is not an action; expected {known}"));
            }
        };
        let (mut rank, mut point, mut step, mut generation) = (None, None, None, None);
        for condition in conditions.split(',') {
            let (key, value) =
                condition.split_once('=').ok_or_else(|| format!("`{condition}` is not KEY=VALUE"))?;
            let twice = match key {
                "rank" => rank.replace(number(key, value)?).is_some(),
                "phase" => point.replace(value.parse()?).is_some(),
                "step" => step.replace(number(key, value)?).is_some(),
                "generation" => generation.replace(number(key, value)?).is_some(),
                _ => {
                    let known = "`rank`, `phase`, `step` or `generation`";
                    return Err(format!("unknown key `{key}`; expected {known}"));
                }
            };
            if twice {
                return Err(format!("`{key}` is given twice"));
            }
        }
        let rank = rank.ok_or("`rank` is missing")?;
        let point = point.ok_or("`phase` is missing")?;
        if generation == Some(0) {
            return Err("`generation` counts from 1".into());
        }
        if point == FaultPoint::Connect && step.is_some() {
            return Err("`connect` comes before all steps".into());
        }
        if point == FaultPoint::Connect && action == FaultAction::Flip {
            return Err("`connect` comes before there are parameters".into());
        }
        Ok(Self { action, rank, point, step, generation })
    }
}

/// Limits the size of the files that this process writes to nothing: needs no rights, and concerns no other process. Writes
/// then fail (EFBIG; `launch::begin` has them not kill the process), and what is mapped already stays.
fn files_can_not_grow() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = Rlimit { current: Some(0), maximum: getrlimit(Resource::Fsize).maximum };
    if let Err(e) = setrlimit(Resource::Fsize, limit) {
        tracing::error!("{VARIABLE}: cannot limit the size of files: {e}");
    }
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("`{key}={value}` is not a number in range"))
}

impl FromStr for FaultPoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "connect" {
            return Ok(Self::Connect);
        }
        let phase = Phase::parse(text).map(Self::Phase);
        let call = || Call::names().find(|c| *c == text).map(Self::Call);
        phase.or_else(call).ok_or_else(|| {
            let phases = Phase::ALL.map(Phase::name).join(", ");
            let calls: Vec<_> = Call::names().collect();
            format!(
                "`{text}` is not a phase; expected connect, {phases}, or one of the calls {}",
                calls.join(", ")
            )
        })
    }
}

/// The fault of this rank, and what it does.
struct ArmedFault {
    fault: InjectedFault,
    trigger: fn(&InjectedFault, &str),
    step: AtomicU64,
    triggered: AtomicBool,
}

impl ArmedFault {
    fn new(fault: InjectedFault, trigger: fn(&InjectedFault, &str)) -> Self {
        Self { fault, trigger, step: AtomicU64::new(0), triggered: AtomicBool::new(false) }
    }

    fn reach(&self, point: FaultPoint, step: u64) {
        let due = point == self.fault.point && self.fault.step.is_none_or(|s| s == step);
        if due && !self.triggered.swap(true, Ordering::Relaxed) {
            let place = match point {
                FaultPoint::Phase(phase) => StepPhase { step, phase }.to_string(),
                FaultPoint::Call(call) => format!("step {step}, in {call}"),
                FaultPoint::Connect => String::new(),
            };
            (self.trigger)(&self.fault, &place);
        }
    }
}

impl Intercept for ArmedFault {
    fn before_call(&self, name: &'static str) {
        self.reach(FaultPoint::Call(name), self.step.load(Ordering::Relaxed));
    }

    fn at_place(&self, place: StepPhase) {
        self.step.store(place.step, Ordering::Relaxed);
        self.reach(FaultPoint::Phase(place.phase), place.step);
    }
}

#[cfg(test)]
#[path = "fault_tests.rs"]
mod tests;
