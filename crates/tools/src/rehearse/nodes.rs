//! Several nodes on this machine, each with a supervisor of its own, of which one is lost.

use super::matrix::{FAULT_STEP, Fault};
use super::trial::{Stage, TrialResult, TrialVerdict, clear, resumed_at, why};
use super::watch::held_worker;
use crate::repro::{Child, Outcomes, Trainer, send};
use base::error::Result;
use collectives::rendezvous::{Secret, SecretText};
use job::worker::FAULT;
use rustix::process::Signal;
use std::path::Path;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(10);

/// Names the key that the nodes prove to each other.
const SECRET: &str = "DDP_RUN_SECRET";

/// A run of several nodes.
pub struct SimulatedNodes<'a> {
    stage: &'a Stage,
    nodes: usize,
    /// Processes of each.
    nproc: usize,
    /// In no file, where others could read it.
    secret: SecretText,
}

impl<'a> SimulatedNodes<'a> {
    /// # Errors
    /// The system has no random numbers (70).
    pub fn new(stage: &'a Stage, nodes: usize, nproc: usize) -> Result<Self> {
        Ok(Self { stage, nodes, nproc, secret: Secret::generate()?.to_hex() })
    }

    /// Loses the last node when a step is under way, and starts it again. It is compared with an undisturbed run of as many nodes.
    ///
    /// # Errors
    /// Files can't be read or written (74).
    pub fn play(&self) -> Result<TrialResult> {
        let whole = self.stage.folder.join("whole-nodes");
        let started = self.start_all(&whole, None)?;
        let ends = self.wait_for_all(started)?;
        let done = |ends: &[(Option<i32>, String)]| ends.iter().all(|(code, _)| *code == Some(0));
        if !done(&ends) {
            return Ok(tried(
                TrialVerdict::Failed,
                &ends,
                None,
                None,
                format!("without a fault: {}", first_error(&ends)),
            ));
        }
        let out = self.stage.folder.join("trial-nodes");
        let (variable, _) = Fault::LostNode.variable(self.nodes * self.nproc);
        let mut started = self.start_all(&out, Some(&variable))?;
        let Some(mut lost) = started.pop() else {
            return Ok(tried(TrialVerdict::NotReached, &[], None, None, String::new()));
        };
        let Some(held) = self.held(&mut lost)? else {
            let note = "no rank of the last node came to the step in which it is lost".to_owned();
            return Ok(tried(TrialVerdict::NotReached, &[], None, None, note));
        };
        let struck = Instant::now();
        send(lost.pid(), Signal::KILL);
        drop(lost);
        // Its workers die with it; this one was stopped.
        send(held, Signal::KILL);
        started.push(self.trainer(&out, self.nodes - 1)?.start()?);
        let back = self.progress(&out, &mut started)?.map(|at| at.duration_since(struck).as_secs_f64());
        let ends = self.wait_for_all(started)?;
        if !done(&ends) {
            return Ok(tried(TrialVerdict::Failed, &ends, None, back, first_error(&ends)));
        }
        let repeated = FAULT_STEP.saturating_sub(resumed_at(&out)?.unwrap_or(0));
        let stage = Stage { whole: whole.clone(), ..self.stage.clone() };
        let (verdict, note) = stage.compared(&out)?;
        clear(&whole)?;
        Ok(tried(verdict, &ends, Some(repeated), back, note))
    }

    /// Starts all nodes; the last one has the fault.
    fn start_all(&self, out: &Path, fault: Option<&str>) -> Result<Vec<Child>> {
        let start = |node: usize| {
            let trainer = self.trainer(out, node)?;
            match fault.filter(|_| node + 1 == self.nodes) {
                Some(fault) => trainer.variable(FAULT, fault).start(),
                None => trainer.start(),
            }
        };
        (0..self.nodes).map(start).collect()
    }

    fn trainer(&self, out: &Path, node: usize) -> Result<Trainer> {
        let meet = std::path::absolute(out.with_extension("meet"))?;
        let endpoint = format!("file://{}", meet.display());
        let (nodes, rank, nproc) = (self.nodes.to_string(), node.to_string(), self.nproc.to_string());
        let flags = [
            "--nnodes",
            &nodes,
            "--node-rank",
            &rank,
            "--nproc-per-node",
            &nproc,
            "--rdzv-endpoint",
            &endpoint,
            "--max-restarts",
            "1",
        ];
        let mut trainer = Trainer::new(&self.stage.spec, out, self.nproc, &self.stage.stop);
        trainer.flags.clear();
        trainer.told = out.with_extension(format!("stderr-{node}"));
        Ok(trainer.flags(flags).variable(SECRET, &*self.secret))
    }

    /// The worker of `node` that is held by its fault.
    fn held(&self, node: &mut Child) -> Result<Option<u32>> {
        while node.age() < self.stage.limit && node.ended()?.is_none() {
            if let Some(held) = held_worker(node.pid()) {
                return Ok(Some(held));
            }
            std::thread::sleep(POLL);
        }
        Ok(None)
    }

    /// When the run had a step that was not done before the node was lost; `None` if it ended first, or hangs.
    fn progress(&self, out: &Path, nodes: &mut [Child]) -> Result<Option<Instant>> {
        let (metrics, begun) = (out.join("metrics.jsonl"), Instant::now());
        while begun.elapsed() < self.stage.limit {
            // A restart replaces the file.
            let step = Outcomes::read(&metrics).unwrap_or_default().last_step();
            if step > Some(FAULT_STEP) {
                return Ok(Some(Instant::now()));
            }
            if nodes[0].ended()?.is_some() {
                return Ok(None);
            }
            std::thread::sleep(POLL);
        }
        Ok(None)
    }

    /// How each node ended, and what it said. What hangs is killed.
    fn wait_for_all(&self, nodes: Vec<Child>) -> Result<Vec<(Option<i32>, String)>> {
        let begun = Instant::now();
        let end = |mut node: Child| -> Result<(Option<i32>, String)> {
            let limit = self.stage.limit;
            let status = node.watch(|_| Ok(begun.elapsed() < limit))?;
            Ok((status.and_then(|status| status.code()), why(&node.told(), status.is_none(), node.age())))
        };
        nodes.into_iter().map(end).collect()
    }
}

fn tried(
    verdict: TrialVerdict,
    ends: &[(Option<i32>, String)],
    steps_repeated: Option<u64>,
    seconds: Option<f64>,
    note: String,
) -> TrialResult {
    let exit_codes = ends.iter().map(|(code, _)| *code).collect();
    TrialResult { fault: Fault::LostNode.name(), verdict, exit_codes, steps_repeated, seconds, note }
}

fn first_error(ends: &[(Option<i32>, String)]) -> String {
    let failed = ends.iter().find(|(code, _)| *code != Some(0));
    failed.map_or_else(String::new, |(_, why)| why.clone())
}
