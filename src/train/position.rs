//! Where a run stands: what `state.json` needs besides tensors.

use super::Sums;
use serde::{Deserialize, Serialize};

/// The counters of a run. Equal on all ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// Epochs completed, which is the number of the current one.
    pub epoch: u64,
    /// Micro-batches of the current epoch that are done.
    pub micro: u64,
    /// Optimizer steps of the current epoch that are done.
    pub step_in_epoch: u64,
    /// Optimizer steps done.
    pub step: u64,
    /// Micro-batches done, over all epochs: numbers the random streams.
    pub micro_total: u64,
    /// Samples trained on by all ranks together, padding included.
    pub samples: u64,
    /// Sums of the current epoch so far, over all ranks.
    pub epoch_sums: Sums,
    /// Sums since the last step line of `metrics.jsonl`, so that a resumed run writes the lines it would have written.
    pub window: Sums,
    /// The last evaluation.
    pub val: Option<Sums>,
    /// The parameters in the order that fills the gradient buckets, learnt in the first step of several ranks: the order of
    /// summation, and so a resumed run's bits, follow from it.
    #[serde(default)]
    pub bucket_order: Option<Vec<usize>>,
    /// `epoch` at the last save; tells a save after an epoch from one in its last step.
    #[serde(skip)]
    pub saved_epochs: u64,
}

impl Position {
    pub(super) fn advance(&mut self, micro_batches: u64, sums: &Sums) {
        self.micro += micro_batches;
        self.micro_total += micro_batches;
        self.step_in_epoch += 1;
        self.step += 1;
        self.samples += sums.samples as u64;
        self.epoch_sums.add(sums);
        self.window.add(sums);
    }

    pub(super) fn next_epoch(&mut self, val: Option<Sums>) {
        self.epoch += 1;
        self.micro = 0;
        self.step_in_epoch = 0;
        self.epoch_sums = Sums::default();
        self.val = val.or(self.val.take());
    }
}
