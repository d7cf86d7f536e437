//! What a comparison has found, in words and as JSON.

use super::side::Side;
use base::display::name as shown;
use job::plan::changes::lines;
use record::{DifferentTensor, DigestGroup, Digests};
use serde_json::{Value, json};
use std::fmt::Write;

/// How two runs compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Identical {
        until: u64,
    },
    Differ {
        step: u64,
        /// No earlier step differs.
        exact: bool,
    },
    /// They differ, but replays of both are the same: what made them differ does not happen again.
    Unrepeatable {
        /// The first step that is known to differ.
        step: u64,
    },
}

/// The digests of the steps that were trained again, of A and of B.
pub(super) struct Replays {
    /// They began after this step.
    pub from: u64,
    pub of: [Digests; 2],
}

/// The result of `bisect`.
#[derive(Debug)]
pub struct Findings {
    pub(super) folders: [String; 2],
    worlds: [usize; 2],
    last_steps: [u64; 2],
    /// Key, and the value in either spec.
    specs: Vec<[String; 3]>,
    pub(super) outcome: Comparison,
    /// The last step known to be the same.
    pub(super) equal_until: Option<u64>,
    /// Those of the step that differ, the first one first; none if they are not known.
    pub(super) tensors: Vec<DifferentTensor>,
    /// The step after which replays began.
    pub(super) replayed_from: Option<u64>,
    /// Why nothing could be replayed, if that would have told more.
    pub(super) not_replayed: Option<String>,
    /// By run: the first step whose digests in the folder are not those of the replay.
    pub(super) strays: [Option<u64>; 2],
    /// The first step and tensor that differ between replays which are not what the runs did.
    pub(super) replays_differ: Option<(u64, DifferentTensor)>,
    /// By run: what its replay could not repeat as it was, a line each.
    pub(super) unknown: [Vec<String>; 2],
}

impl Findings {
    pub(super) fn new(sides: &[Side; 2], specs: Vec<[String; 3]>) -> Self {
        Self {
            folders: sides.each_ref().map(|side| side.folder.display().to_string()),
            worlds: sides.each_ref().map(|side| side.world),
            last_steps: sides.each_ref().map(|side| side.last_step),
            specs,
            outcome: Comparison::Identical { until: 0 },
            equal_until: None,
            tensors: Vec::new(),
            replayed_from: None,
            not_replayed: None,
            strays: [None, None],
            replays_differ: None,
            unknown: [Vec::new(), Vec::new()],
        }
    }

    /// Whether no difference was found.
    pub fn is_identical(&self) -> bool {
        matches!(self.outcome, Comparison::Identical { .. })
    }

    /// An object.
    pub fn json(&self) -> Value {
        let (result, step, exact) = match self.outcome {
            Comparison::Identical { .. } => ("identical", None, None),
            Comparison::Differ { step, exact } => ("differ", Some(step), Some(exact)),
            Comparison::Unrepeatable { step } => ("unrepeatable", Some(step), Some(false)),
        };
        let equal_until = match self.outcome {
            Comparison::Identical { until } => Some(until),
            _ => self.equal_until,
        };
        let spec = |[key, a, b]: &[String; 3]| json!({ "key": key, "a": a, "b": b });
        json!({
            "a": self.folders[0],
            "b": self.folders[1],
            "result": result,
            "step": step,
            "exact": exact,
            "equal_until": equal_until,
            "tensor": self.tensors.first(),
            "tensors": self.tensors,
            "replayed_from": self.replayed_from,
            "not_replayed": self.not_replayed,
            "replays_differ": self.replays_differ.as_ref().map(|(step, tensor)| json!({ "step": step, "tensor": tensor })),
            "unlike_replay": { "a": self.strays[0], "b": self.strays[1] },
            "unknown": { "a": self.unknown[0], "b": self.unknown[1] },
            "world": { "a": self.worlds[0], "b": self.worlds[1] },
            "steps": { "a": self.last_steps[0], "b": self.last_steps[1] },
            "spec": self.specs.iter().map(spec).collect::<Vec<_>>(),
        })
    }

    /// Lines for people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let [a, b] = &self.folders;
        match self.outcome {
            Comparison::Identical { until } => self.write_identical(&mut out, until),
            Comparison::Differ { step, exact } => {
                let first = self.first_tensor();
                let _ = match exact {
                    true => writeln!(out, "{a} and {b} differ from step {step} on{first}"),
                    false => {
                        let after = self.equal_until.unwrap_or(0);
                        writeln!(
                            out,
                            "{a} and {b} differ in a step after step {after} and up to step {step}{first}"
                        )
                    }
                };
            }
            Comparison::Unrepeatable { step } => {
                let first = self.first_tensor();
                let _ = writeln!(
                    out,
                    "{a} and {b} differ at step {step}{first}; replays of both do not, so what made them differ was not repeated"
                );
                out.push_str("it is no part of the specs: another program, data or machine then, silent data corruption, or results that depend on timing\n");
            }
        }
        self.write_details(&mut out);
        out
    }

    /// `: gradient `fc1.weight` first`
    fn first_tensor(&self) -> String {
        self.tensors.first().map_or_else(String::new, |first| format!(": {} first", self.named(first)))
    }

    fn named(&self, tensor: &DifferentTensor) -> String {
        let what = match tensor.group {
            DigestGroup::Input => "input",
            DigestGroup::Buffer => "buffer",
            DigestGroup::Gradient => "gradient",
            DigestGroup::Optimizer => "optimizer state",
            DigestGroup::Parameter => "parameter",
            DigestGroup::Average => "averaged weight",
        };
        let [a, b] = &self.folders;
        let only = match (&tensor.a, &tensor.b) {
            (Some(_), None) => format!(" (only {a} has it)"),
            (None, Some(_)) => format!(" (only {b} has it)"),
            _ => String::new(),
        };
        format!("{what} `{}`{only}", shown(&tensor.name))
    }

    fn write_identical(&self, out: &mut String, until: u64) {
        let [a, b] = &self.folders;
        let _ = writeln!(out, "{a} and {b} are the same up to step {until}");
        let [last_a, last_b] = self.last_steps;
        if last_a.min(last_b) > until {
            let _ = writeln!(
                out,
                "of what they have both trained after it nothing can be compared; `--until {}` replays it",
                last_a.min(last_b)
            );
        } else if last_a != last_b {
            let longer = if last_a > last_b { a } else { b };
            let _ = writeln!(out, "{longer} has gone on to step {}", last_a.max(last_b));
        }
    }

    fn write_details(&self, out: &mut String) {
        let counts: Vec<String> = DigestGroup::ALL
            .into_iter()
            .filter_map(|group| {
                let count = self.tensors.iter().filter(|tensor| tensor.group == group).count();
                (count > 0).then(|| format!("{count} {group}"))
            })
            .collect();
        if !counts.is_empty() {
            let _ = writeln!(out, "  different tensors of that step: {}", counts.join(", "));
        }
        if let Some(equal) = self.equal_until.filter(|_| !self.is_identical()) {
            let _ = writeln!(out, "  the same up to step {equal}");
        }
        if let Some(why) = &self.not_replayed {
            let _ = writeln!(out, "  not replayed: {why}");
        }
        if let Some(from) = self.replayed_from {
            let _ = writeln!(out, "  both replayed from step {from}");
            self.write_replays(out);
        }
        if self.worlds[0] != self.worlds[1] {
            let [a, b] = self.worlds;
            let _ = writeln!(
                out,
                "  {a} and {b} ranks: steps have other samples unless the global batch is the same, and sums have another order"
            );
        }
        if !self.specs.is_empty() {
            out.push_str("  the specs differ in keys that change results:\n");
            let said =
                self.specs.iter().map(|[key, a, b]| (key.as_str(), format!("{}, {}", shown(a), shown(b))));
            lines(said).iter().for_each(|line| {
                let _ = writeln!(out, "    {line}");
            });
        }
    }

    /// How the replays are not what the runs did.
    fn write_replays(&self, out: &mut String) {
        if let Some((step, tensor)) = &self.replays_differ {
            let tensor = self.named(tensor);
            let _ = writeln!(
                out,
                "  the replays differ from step {step} on: {tensor} first; they are not what the runs did"
            );
        }
        for (folder, stray) in self.folders.iter().zip(self.strays) {
            if let Some(step) = stray {
                let _ =
                    writeln!(out, "  {folder}: its digests are not those of its replay from step {step} on");
            }
        }
        for (folder, lines) in self.folders.iter().zip(&self.unknown) {
            lines.iter().for_each(|line| {
                let _ = writeln!(out, "  {folder}: {line}");
            });
        }
    }
}
