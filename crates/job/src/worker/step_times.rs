//! Where a rank's steps spend their time, for `ddp-run bench train`: measures the phases that the training loop reports to
//! its process group. The variable names the folder for the results; without it nothing is measured.

use super::intercepted_group::{Intercept, InterceptedGroup};
use base::error::{Error, Result};
use base::files;
use collectives::{Phase, ProcessGroup, StepPhase};
use launch::page_faults;
use record::memory_of;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Names the folder.
pub const STEP_TIMES: &str = "DDP_RUN_STEP_TIMES";

/// Seconds of one optimizer step, by phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepTime {
    /// Waiting for batches.
    pub data: f64,
    /// Forward passes and losses.
    pub forward: f64,
    /// Backward passes.
    pub backward: f64,
    /// Waiting for the all-reduce after the backward pass, and the exchange of the step's sums.
    pub sync: f64,
    /// The optimizer's update, and what follows until the next step: reporting, the end of an epoch.
    pub update: f64,
    /// Forward passes; fewer than usual in the last step of an epoch.
    pub micro_batches: usize,
    /// Of the whole process; `None` if the system does not report it.
    pub page_faults: Option<u64>,
}

impl StepTime {
    /// Sum of all phases, in seconds.
    pub fn total(&self) -> f64 {
        self.data + self.forward + self.backward + self.sync + self.update
    }

    fn phase(&mut self, phase: Phase) -> Option<&mut f64> {
        Some(match phase {
            Phase::Data => &mut self.data,
            Phase::Forward => &mut self.forward,
            Phase::Backward => &mut self.backward,
            Phase::Sync => &mut self.sync,
            Phase::Update => &mut self.update,
            Phase::Setup | Phase::Evaluate | Phase::Generate | Phase::Save | Phase::Finish => return None,
        })
    }
}

/// The measurements of one rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepTimes {
    /// Number of processes in the run.
    pub world: usize,
    /// One entry per optimizer step, in order.
    pub steps: Vec<StepTime>,
    /// The largest resident memory of the process, in bytes.
    pub peak_memory: Option<u64>,
}

impl StepTimes {
    /// The file of `rank`.
    pub fn file(folder: &Path, rank: usize) -> PathBuf {
        folder.join(format!("rank-{rank}.json"))
    }

    /// The measurements that each of `world` ranks has written.
    pub fn of_all(folder: &Path, world: usize) -> Result<Vec<Self>> {
        let read = |rank| {
            let bytes = base::files::read(&Self::file(folder, rank)).map_err(|e| e.to_string())?;
            serde_json::from_slice::<Self>(&bytes).map_err(|e| e.to_string())
        };
        let all: Result<Vec<_>, _> = (0..world).map(read).collect();
        match all {
            Ok(all) if all.iter().all(|times| times.world == world) => Ok(all),
            Ok(all) => Err(format!("it ran with {} processes", all[0].world)),
            Err(e) => Err(e),
        }
        .map_err(|e| Error::internal(format!("the run with {world} processes left no measurement: {e}")))
    }
}

/// Wraps `group` if the environment (`get`) asks for a measurement.
pub fn measured(group: Arc<dyn ProcessGroup>, get: &dyn Fn(&str) -> Option<String>) -> Arc<dyn ProcessGroup> {
    let Some(folder) = get(STEP_TIMES).filter(|folder| !folder.is_empty()) else { return group };
    let (rank, world) = (group.rank(), group.world_size());
    let clock = StepClock { folder: folder.into(), rank, world, watch: Mutex::default() };
    Arc::new(InterceptedGroup::new(group, clock))
}

/// The clock of a rank.
struct StepClock {
    folder: PathBuf,
    rank: usize,
    world: usize,
    watch: Mutex<Watch>,
}

/// Adds up the times between reports of phases.
#[derive(Default)]
struct Watch {
    /// Since when the rank is in this place.
    current: Option<(StepPhase, Instant)>,
    /// The number of the current step, and the page faults before it.
    step: Option<u64>,
    faults: Option<u64>,
    times: StepTimes,
}

impl Watch {
    /// The rank is in another place from `now` on; `faults` counts the process's page faults until now.
    fn reach(&mut self, place: StepPhase, now: Instant, faults: &dyn Fn() -> Option<u64>) {
        if let Some((last, since)) = self.current.replace((place, now)) {
            let time = self.times.steps.last_mut().and_then(|step| step.phase(last.phase));
            time.into_iter().for_each(|time| *time += (now - since).as_secs_f64());
        }
        if let Some(step) = self.times.steps.last_mut().filter(|_| place.phase == Phase::Forward) {
            step.micro_batches += 1;
        }
        let begins = place.phase == Phase::Data && self.step != Some(place.step);
        if !begins && place.phase != Phase::Finish {
            return;
        }
        let faults = faults();
        if let Some(step) = self.times.steps.last_mut() {
            step.page_faults = faults.zip(self.faults).map(|(now, before)| now - before);
        }
        self.faults = faults;
        if begins {
            self.step = Some(place.step);
            self.times.steps.push(StepTime::default());
        }
    }
}

impl StepClock {
    fn write(&self, times: StepTimes) -> Result<()> {
        let times = StepTimes { world: self.world, peak_memory: peak_memory(), ..times };
        files::replace_json(&StepTimes::file(&self.folder, self.rank), &times)
    }
}

impl Intercept for StepClock {
    fn at_place(&self, place: StepPhase) {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        watch.reach(place, Instant::now(), &page_faults);
        if place.phase == Phase::Finish
            && let Err(e) = self.write(std::mem::take(&mut watch.times))
        {
            tracing::error!("the times of the steps are lost: {e}");
        }
    }
}

fn peak_memory() -> Option<u64> {
    memory_of(&std::fs::read_to_string("/proc/self/status").ok()?, "VmHWM")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::time::Duration;

    #[test]
    fn times_are_added_up_by_step_and_phase() {
        let (mut watch, begin, faults) = (Watch::default(), Instant::now(), Cell::new(100));
        let mut reach = |step, phase, ms| {
            faults.set(faults.get() + 1);
            watch.reach(StepPhase { step, phase }, begin + Duration::from_millis(ms), &|| Some(faults.get()));
        };
        use Phase::{Backward, Data, Evaluate, Finish, Forward, Setup, Sync, Update};
        reach(0, Setup, 0);
        // Two micro-batches.
        for (phase, ms) in [
            (Data, 10),
            (Forward, 11),
            (Backward, 13),
            (Data, 17),
            (Forward, 18),
            (Backward, 21),
            (Sync, 26),
            (Update, 28),
        ] {
            reach(0, phase, ms);
        }
        for (phase, ms) in
            [(Data, 31), (Forward, 32), (Backward, 33), (Sync, 34), (Update, 35), (Evaluate, 36)]
        {
            reach(1, phase, ms);
        }
        reach(2, Finish, 99);
        let steps = watch.times.steps;
        let ms = |s: &StepTime| {
            [s.data, s.forward, s.backward, s.sync, s.update].map(|t| (t * 1e3).round() as u64)
        };
        assert_eq!(steps.iter().map(ms).collect::<Vec<_>>(), [[2, 5, 9, 2, 3], [1, 1, 1, 1, 1]]);
        assert_eq!(steps.iter().map(|s| s.micro_batches).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(steps.iter().map(|s| s.page_faults).collect::<Vec<_>>(), [Some(8), Some(6)]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_faults_and_memory() {
        assert!(page_faults().is_some_and(|n| n > 0) && peak_memory().is_some_and(|n| n > 1 << 20));
    }
}
