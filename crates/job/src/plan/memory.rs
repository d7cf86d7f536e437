//! The memory that ranks need at the same time while they train, and whether this machine has that much.
//!
//! A lower bound, so that a warning is never wrong: what is counted exists at once in every run of more than one step, in f32. Not counted are
//! what models of one's own keep for the backward pass, the samples of the data set, prefetched batches, buffers of collectives and the program.

use super::{Plan, World};
use base::display::count;
use checkpoint::Every;
use data::{FieldFacts, FieldKind};
use ddp::device::DeviceSpec;
use launch::memory::UsableMemory;
use serde::Serialize;
use train::models::{MANY_LOGITS, ROWS_OF_LOGITS};

/// This machine, and how many ranks of the job it runs.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Number of ranks on this machine; 1 if the placement of the ranks is unknown.
    pub ranks: usize,
    /// Memory that processes may use; `None` if unknown.
    pub memory: Option<UsableMemory>,
}

/// In bytes, at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryNeeds {
    /// On each rank: weights, buffers, gradients, the optimizer's state, the average of the weights, and a micro-batch.
    pub rank_bytes: u64,
    /// Of these, one micro-batch: its inputs, targets and outputs, and what the layers keep for the backward pass; 0 while the data is unknown.
    pub batch_bytes: u64,
    /// In the host memory of rank 0 in addition: the copy of its state that a save writes.
    pub copy_bytes: u64,
}

impl Plan {
    /// `None` if the model's size depends on data that has not been read.
    pub fn memory(&self) -> Option<MemoryNeeds> {
        let sizes = self.sizes.as_ref()?;
        let batch_bytes = self.batch_bytes();
        let average = sizes.average_bytes.unwrap_or(0);
        let parts = [sizes.model_bytes, sizes.gradient_bytes, sizes.optimizer_bytes, average, batch_bytes];
        Some(MemoryNeeds {
            rank_bytes: parts.into_iter().fold(0, u64::saturating_add),
            batch_bytes,
            copy_bytes: if self.save_every == Every::Never { 0 } else { sizes.checkpoint_bytes },
        })
    }

    fn batch_bytes(&self) -> u64 {
        let facts = &self.dataset.facts;
        let (Some(input), Some(target)) = (&facts.input, &facts.target) else { return 0 };
        // In the first step there are no gradients yet while outputs exist.
        if self.total_steps().is_none_or(|steps| steps < 2) {
            return 0;
        }
        let samples = self.batch_size.min(self.batch.taken_per_rank(self.world.world_size));
        // A task of one's own need not have outputs.
        let outputs = match (self.task.own(), target.kind) {
            (Some(_), _) => 0,
            (None, FieldKind::Float) => 4,
            (None, FieldKind::Index(classes)) => 4_u64.saturating_mul(classes as u64),
        };
        let rows = values(target).saturating_mul(samples as u64);
        // Many logits of a language model are computed in parts.
        let in_parts = !self.may_be_on_device() && outputs.saturating_mul(rows) / 4 >= MANY_LOGITS as u64;
        let outputs = outputs.saturating_mul(if in_parts { rows.min(ROWS_OF_LOGITS as u64) } else { rows });
        let each = [bytes(input), bytes(target), self.kept_bytes()];
        let each = each.into_iter().fold(0, u64::saturating_add);
        each.saturating_mul(samples as u64).saturating_add(outputs)
    }

    /// What layers keep of a sample for the backward pass. A frozen one keeps nothing.
    fn kept_bytes(&self) -> u64 {
        let all_trained = self.sizes.is_some_and(|sizes| sizes.trainable == sizes.parameters);
        if !all_trained || self.task.own().is_some() || self.may_be_on_device() {
            return 0;
        }
        let values = self.model.source.kept_values(&self.dataset.facts).unwrap_or(0);
        4_u64.saturating_mul(values as u64)
    }

    /// Whether parameters are, or may be, in the memory of a device.
    pub(super) fn may_be_on_device(&self) -> bool {
        match self.device {
            DeviceSpec::Cpu => false,
            // The CPU in a build that knows no CUDA.
            DeviceSpec::Auto => cfg!(feature = "cuda"),
            DeviceSpec::Cuda(_) | DeviceSpec::Wgpu(_) => true,
        }
    }

    /// The host memory that the ranks of this machine need together; 0 if it is unknown, or if they compute on devices.
    fn memory_here(&self) -> u64 {
        let Some(needs) = self.memory().filter(|_| !self.may_be_on_device()) else { return 0 };
        // Otherwise rank 0 may be on another machine.
        let copy = if self.machine.ranks == self.world.world_size { needs.copy_bytes } else { 0 };
        needs.rank_bytes.saturating_mul(self.machine.ranks as u64).saturating_add(copy)
    }

    /// That this machine has less memory than the ranks on it need at least.
    pub fn memory_warning(&self) -> Option<String> {
        let (memory, needed) = (self.machine.memory?, self.memory_here());
        if needed <= memory.bytes {
            return None;
        }
        let there = super::show_bytes(memory.bytes);
        let there = match memory.limited {
            true => format!("the limit of this process's control group is {there}"),
            false => format!("this machine has {there}"),
        };
        Some(format!(
            "needs at least {} of memory for {} on {}; {there}",
            super::show_bytes(needed),
            self.in_memory(),
            count(self.machine.ranks, "rank"),
        ))
    }

    /// `weights, gradients and the state of `adamw``.
    fn in_memory(&self) -> String {
        let Some((sizes, needs)) = self.sizes.as_ref().zip(self.memory()) else { return String::new() };
        let state = format!("the state of `{}`", self.optimizer.name);
        let copied = self.machine.ranks == self.world.world_size && needs.copy_bytes > 0;
        let parts = [
            (true, "weights"),
            (sizes.gradient_bytes > 0, "gradients"),
            (sizes.optimizer_bytes > 0, &state),
            (sizes.average_bytes.is_some(), "their average"),
            (needs.batch_bytes > 0, "a micro-batch"),
            (copied, "the copy that a save writes"),
        ];
        let named: Vec<&str> = parts.into_iter().filter(|(there, _)| *there).map(|(_, name)| name).collect();
        match named.split_last() {
            Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
            _ => named.concat(),
        }
    }

    /// For the text of a plan.
    pub(super) fn memory_text(&self) -> Option<String> {
        let needs = self.memory()?;
        let place = if self.may_be_on_device() { "the device of each rank" } else { "each rank" };
        let copy = match needs.copy_bytes {
            0 => String::new(),
            bytes => format!(", and {} of host memory on rank 0 for saves", super::show_bytes(bytes)),
        };
        Some(format!("at least {} on {place}{copy}", super::show_bytes(needs.rank_bytes)))
    }
}

impl Machine {
    /// `local`: the ranks that a launcher starts here. Where `given` ranks are to be placed on machines that are not known, there is at least
    /// one on each.
    pub(super) fn new(
        world: &World,
        local: Option<usize>,
        given: Option<usize>,
        memory: Option<UsableMemory>,
    ) -> Self {
        let ranks = local.unwrap_or(if given.is_some() { 1 } else { world.nproc_per_node });
        Self { ranks, memory }
    }
}

fn values(field: &FieldFacts) -> u64 {
    field.shape.iter().fold(1, |n, size| n.saturating_mul(*size as u64))
}

/// As a loader has them.
fn bytes(field: &FieldFacts) -> u64 {
    let each = match field.kind {
        FieldKind::Float => 4,
        FieldKind::Index(_) => 8,
    };
    values(field).saturating_mul(each)
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
