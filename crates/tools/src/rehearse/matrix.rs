//! Which faults are rehearsed, of how many ranks, and which are not, and why.

use collectives::Phase;
use job::plan::Plan;

/// Optimizer steps that are done when a rank fails in the middle of training: one more than are saved.
pub const FAULT_STEP: u64 = 3;
/// Steps between two saves.
pub const SAVE_EVERY: u64 = 2;
/// The fewest steps with a save before the fault and one after it.
pub const LEAST_STEPS: u64 = 5;

/// What happens to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A rank dies (SIGKILL), or is silent (SIGSTOP) until the others have waited for `distributed.timeout`, or for
    /// `distributed.init_timeout` where the ranks meet.
    Rank { kill: bool, rank: usize, moment: Moment },
    /// SIGTERM to the supervisor, as a scheduler sends it.
    StopRequest,
    /// SIGKILL to the supervisor.
    SupervisorKilled,
    /// Rank 0's files can't grow from a save on.
    FullDisk,
    /// SIGKILL to the supervisor of the last node, which comes back.
    LostNode,
}

/// Where in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before the rendezvous.
    Connect,
    /// In this phase of the training process.
    Phase(Phase),
}

impl Moment {
    /// In the order of a run.
    pub fn all() -> Vec<Self> {
        std::iter::once(Self::Connect).chain(Phase::ALL.map(Self::Phase)).collect()
    }

    /// `connect`, or the name of the phase, as `--phases` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Phase(phase) => phase.name(),
        }
    }

    /// The optimizer steps that are done then; `None` for the first time that it is reached.
    fn step(self) -> Option<u64> {
        match self {
            Self::Connect | Self::Phase(Phase::Setup | Phase::Evaluate | Phase::Generate | Phase::Finish) => {
                None
            }
            Self::Phase(Phase::Save) => Some(2 * SAVE_EVERY),
            Self::Phase(Phase::Data | Phase::Forward | Phase::Backward | Phase::Sync | Phase::Update) => {
                Some(FAULT_STEP)
            }
        }
    }

    /// Whether a run of `plan` has it, as far as that is known before its data are.
    pub fn is_in(self, plan: &Plan) -> bool {
        let facts = &plan.dataset.facts;
        self != Self::Phase(Phase::Generate)
            || facts
                .input
                .as_ref()
                .zip(facts.target.as_ref())
                .is_none_or(|(input, target)| plan.settings().details.has_texts(input, target))
    }

    /// Whether it follows from an evaluation.
    pub fn needs_evaluation(self) -> bool {
        matches!(self, Self::Phase(Phase::Evaluate | Phase::Generate))
    }

    /// Whether the others wait for a silent rank with a deadline then.
    fn has_deadline(self) -> bool {
        !matches!(self, Self::Phase(Phase::Setup | Phase::Finish))
    }
}

impl Fault {
    /// `kill rank 1 in forward`
    pub fn name(&self) -> String {
        match self {
            Self::Rank { kill, rank, moment } => {
                format!("{} rank {rank} in {}", if *kill { "kill" } else { "stop" }, moment.name())
            }
            Self::StopRequest => "stop request (SIGTERM)".to_owned(),
            Self::SupervisorKilled => "kill the supervisor".to_owned(),
            Self::FullDisk => "full disk at a checkpoint".to_owned(),
            Self::LostNode => "lose a node, which comes back".to_owned(),
        }
    }

    /// The value of `DDP_RUN_FAULT` that brings it about, or that holds a rank while it happens, and the rank.
    pub fn variable(&self, world: usize) -> (String, usize) {
        let at = |rank: usize, action: &str, moment: Moment| {
            let step = moment.step().map_or_else(String::new, |step| format!(",step={step}"));
            (format!("{action}:rank={rank},phase={}{step},generation=1", moment.name()), rank)
        };
        match self {
            Self::Rank { kill, rank, moment } => at(*rank, if *kill { "kill" } else { "stop" }, *moment),
            Self::FullDisk => at(0, "full", Moment::Phase(Phase::Save)),
            Self::StopRequest | Self::SupervisorKilled | Self::LostNode => {
                at(world - 1, "stop", Moment::Phase(Phase::Forward))
            }
        }
    }
}

/// What is to be rehearsed.
#[derive(Clone, Debug)]
pub struct RehearsalRequest {
    /// Processes on this machine.
    pub world: usize,
    /// Simulated nodes.
    pub nodes: usize,
    pub quick: bool,
    pub moments: Vec<Moment>,
}

impl RehearsalRequest {
    /// The faults, in the order in which they are tried.
    pub fn faults(&self) -> Vec<Fault> {
        let in_short = |moment: &Moment| matches!(moment, Moment::Phase(Phase::Forward | Phase::Save));
        let moments = self.moments.iter().copied().filter(|moment| !self.quick || in_short(moment));
        let moments: Vec<Moment> = moments.collect();
        let of =
            |kill: bool, moment: Moment| (0..self.world).map(move |rank| Fault::Rank { kill, rank, moment });
        let mut all: Vec<Fault> = moments.iter().flat_map(|moment| of(true, *moment)).collect();
        if self.world > 1 {
            let silent = moments.iter().filter(|moment| moment.has_deadline());
            let stops = silent.flat_map(|moment| of(false, *moment));
            // Each costs the deadline.
            let few = if self.quick { 1 } else { usize::MAX };
            all.extend(stops.filter(|fault| !self.quick || self.is_last(fault)).take(few));
        }
        all.extend([Fault::StopRequest, Fault::SupervisorKilled, Fault::FullDisk]);
        if self.nodes > 1 {
            all.push(Fault::LostNode);
        }
        all
    }

    fn is_last(&self, fault: &Fault) -> bool {
        matches!(fault, Fault::Rank { rank, .. } if rank + 1 == self.world)
    }

    /// What is left out, a line each.
    pub fn left_out(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let silent: Vec<&str> =
            self.moments.iter().filter(|moment| !moment.has_deadline()).map(|moment| moment.name()).collect();
        if self.world == 1 {
            lines.push("a silent rank: with one process nobody waits for it".to_owned());
        } else if !silent.is_empty() {
            lines.push(format!(
                "a silent rank in {}: the others wait there without `distributed.timeout`, because data may be prepared for hours, \
                 and a rank that hangs after the end is killed when everything is saved",
                silent.join(" and ")
            ));
        }
        if self.nodes == 1 {
            lines.push("a lost node: the run has one node; `--nnodes 2` simulates two".to_owned());
        }
        if self.quick {
            lines.push("all phases but forward and save, and all but one silent rank (`--quick`)".to_owned());
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use data::{FieldFacts, FieldKind};
    use job::plan::testing::resolved;
    use job::registry::Registry;

    fn wanted(world: usize, nodes: usize, quick: bool) -> RehearsalRequest {
        RehearsalRequest { world, nodes, quick, moments: Moment::all() }
    }

    fn names(wanted: &RehearsalRequest) -> Vec<String> {
        wanted.faults().iter().map(Fault::name).collect()
    }

    #[test]
    fn every_rank_fails_in_every_phase() {
        let all = wanted(2, 2, false);
        let faults = names(&all);
        for rank in 0..2 {
            for moment in Moment::all() {
                assert!(faults.contains(&format!("kill rank {rank} in {}", moment.name())), "{faults:?}");
                let stopped = faults.contains(&format!("stop rank {rank} in {}", moment.name()));
                assert_eq!(stopped, moment.has_deadline(), "{faults:?}");
            }
        }
        assert_eq!(faults.last().map(String::as_str), Some("lose a node, which comes back"));
        assert_eq!((faults.len(), all.left_out().len()), (2 * (11 + 9) + 4, 1));
        let one = wanted(1, 1, false);
        assert!(!names(&one).iter().any(|name| name.starts_with("stop rank")));
        assert_eq!(one.left_out().len(), 2);
    }

    #[test]
    fn texts_are_generated_after_evaluations_of_language_models() {
        let generate = Moment::Phase(Phase::Generate);
        let spec = "name = \"x\"\nepochs = 1\nbatch_size = 8\n[model]\nname = \"gpt\"\n\
            [dataset]\nname = \"text\"\npath = \"missing.txt\"\nblock_size = 16\n[optimizer]\nname = \"sgd\"\nlr = 0.1\n";
        let mut plan = resolved(&Registry::standard(), spec, &[], 2).unwrap();
        assert!(generate.is_in(&plan) && generate.needs_evaluation() && generate.has_deadline());
        let pixels = FieldFacts { shape: vec![4], kind: FieldKind::Float };
        (plan.dataset.facts.input, plan.dataset.facts.target) = (Some(pixels.clone()), Some(pixels));
        assert!(!generate.is_in(&plan) && Moment::Phase(Phase::Evaluate).is_in(&plan));
    }

    #[test]
    fn the_quick_matrix_has_one_of_a_kind() {
        let expected = [
            "kill rank 0 in forward",
            "kill rank 1 in forward",
            "kill rank 0 in save",
            "kill rank 1 in save",
            "stop rank 1 in forward",
            "stop request (SIGTERM)",
            "kill the supervisor",
            "full disk at a checkpoint",
        ];
        assert_eq!(names(&wanted(2, 1, true)), expected);
    }

    /// Only the first attempt fails, and what fails is between two saves.
    #[test]
    fn faults_are_those_that_a_rank_reads() {
        for fault in wanted(4, 2, false).faults() {
            let (variable, rank) = fault.variable(4);
            let read = job::worker::InjectedFault::from_env(&|_| Some(variable.clone()), 4);
            assert!(
                read.is_ok_and(|fault| fault.is_some_and(|f| f.is_due_in(1) && !f.is_due_in(2))),
                "{variable}"
            );
            assert!(rank < 4);
        }
        let moment = Moment::Phase(Phase::Save);
        let fault = Fault::Rank { kill: true, rank: 1, moment };
        assert_eq!(fault.variable(2).0, "kill:rank=1,phase=save,step=4,generation=1");
        let moment = Moment::Phase(Phase::Evaluate);
        let fault = Fault::Rank { kill: false, rank: 0, moment };
        assert_eq!(fault.variable(2).0, "stop:rank=0,phase=evaluate,generation=1");
        assert_eq!(Fault::FullDisk.variable(2).0, "full:rank=0,phase=save,step=4,generation=1");
        assert!(
            !FAULT_STEP.is_multiple_of(SAVE_EVERY)
                && LEAST_STEPS > 2 * SAVE_EVERY
                && LEAST_STEPS > FAULT_STEP
        );
    }
}
