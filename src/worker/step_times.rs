//! Where a rank's steps spend their time, for `ddp-run bench train`: a process group that measures the phases that the
//! training loop reports. The variable names the folder for the results; without it nothing is measured.

use crate::comm::{
    Call, CallRecord, CommError, DeviceCollectives, FailureDetector, Phase, Place, ProcessGroup,
};
use crate::error::{Error, Result};
use crate::files;
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
    pub forward: f64,
    pub backward: f64,
    /// Waiting for the all-reduce after the backward pass, and the exchange of the step's sums.
    pub sync: f64,
    /// The optimizer's update, and reporting.
    pub update: f64,
    /// Of the whole process; `None` if the system does not tell.
    pub page_faults: Option<u64>,
}

impl StepTime {
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
            Phase::Setup | Phase::Evaluate | Phase::Save | Phase::Finish => return None,
        })
    }
}

/// What one rank has measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepTimes {
    pub steps: Vec<StepTime>,
    /// The largest resident memory of the process, in bytes.
    pub peak_memory: Option<u64>,
}

impl StepTimes {
    /// The file of `rank`.
    pub fn file(folder: &Path, rank: usize) -> PathBuf {
        folder.join(format!("rank-{rank}.json"))
    }

    pub fn read(folder: &Path, rank: usize) -> Result<Self> {
        let path = Self::file(folder, rank);
        let read = std::fs::read(&path).map_err(|e| e.to_string());
        read.and_then(|bytes| serde_json::from_slice(&bytes).map_err(|e| e.to_string())).map_err(|e| {
            Error::internal(format!("rank {rank} left no measurement in {}: {e}", path.display()))
        })
    }
}

/// Wraps `group` if the environment (`get`) asks for a measurement.
pub fn measured(group: Arc<dyn ProcessGroup>, get: &dyn Fn(&str) -> Option<String>) -> Arc<dyn ProcessGroup> {
    match get(STEP_TIMES).filter(|folder| !folder.is_empty()) {
        Some(folder) => {
            Arc::new(MeasuredGroup { inner: group, folder: folder.into(), watch: Mutex::default() })
        }
        None => group,
    }
}

struct MeasuredGroup {
    inner: Arc<dyn ProcessGroup>,
    folder: PathBuf,
    watch: Mutex<Watch>,
}

/// Adds up the times between reports of phases.
#[derive(Default)]
struct Watch {
    /// Since when the rank is in this place.
    current: Option<(Place, Instant)>,
    /// The number of the current step, and the page faults before it.
    step: Option<u64>,
    faults: Option<u64>,
    times: StepTimes,
}

impl Watch {
    /// The rank is in another place from `now` on; `faults` counts the process's page faults until now.
    fn reach(&mut self, place: Place, now: Instant, faults: &dyn Fn() -> Option<u64>) {
        if let Some((last, since)) = self.current.replace((place, now)) {
            let time = self.times.steps.last_mut().and_then(|step| step.phase(last.phase));
            time.into_iter().for_each(|time| *time += (now - since).as_secs_f64());
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

impl MeasuredGroup {
    fn write(&self, mut times: StepTimes) -> Result<()> {
        times.peak_memory = peak_memory();
        let json = serde_json::to_vec(&times).map_err(|e| Error::internal(e.to_string()))?;
        files::replace(&StepTimes::file(&self.folder, self.rank()), &json)
    }
}

impl ProcessGroup for MeasuredGroup {
    fn rank(&self) -> usize {
        self.inner.rank()
    }
    fn world_size(&self) -> usize {
        self.inner.world_size()
    }
    fn backend(&self) -> &'static str {
        self.inner.backend()
    }
    fn call(&self, call: Call<'_>) -> Result<(), CommError> {
        self.inner.call(call)
    }
    fn abort(&self, why: &str) {
        self.inner.abort(why);
    }
    fn note(&self, place: Place) {
        self.inner.note(place);
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        watch.reach(place, Instant::now(), &page_faults);
        if place.phase == Phase::Finish
            && let Err(e) = self.write(std::mem::take(&mut watch.times))
        {
            tracing::error!("the times of the steps are lost: {e}");
        }
    }
    fn place(&self) -> Place {
        self.inner.place()
    }
    fn history(&self) -> Vec<CallRecord> {
        self.inner.history()
    }
    fn device_collectives(&self) -> Option<&dyn DeviceCollectives> {
        self.inner.device_collectives()
    }
    fn watch(&self) -> Option<&dyn FailureDetector> {
        self.inner.watch()
    }
}

/// Minor and major page faults of this process.
fn page_faults() -> Option<u64> {
    faults_in(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// Fields 10 and 12 of proc_pid_stat(5); the second field is a name in parentheses, which may hold anything.
fn faults_in(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let field = |number: usize| fields.split_whitespace().nth(number - 3)?.parse::<u64>().ok();
    Some(field(10)? + field(12)?)
}

fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(peak.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? << 10)
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
            watch.reach(Place { step, phase }, begin + Duration::from_millis(ms), &|| Some(faults.get()));
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
        assert_eq!(steps.iter().map(|s| s.page_faults).collect::<Vec<_>>(), [Some(8), Some(6)]);
    }

    #[test]
    fn page_faults_are_read_behind_the_name() {
        let stat = "17 (a ) b (c) R 1 2 3 4 5 6 1000 0 20 0 7 8\n";
        assert_eq!(faults_in(stat), Some(1020));
        assert_eq!((faults_in("17 (a) R 1"), faults_in("")), (None, None));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_faults_and_memory() {
        assert!(page_faults().is_some_and(|n| n > 0) && peak_memory().is_some_and(|n| n > 1 << 20));
    }
}
