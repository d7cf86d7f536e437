//! What training changes. A checkpoint keeps it, and all ranks have the same, but for statistics of
//! batch norms.

use super::{Position, RunTensors, Updater, WeightAverage};
use crate::models::{ALL, Model, StateEntry};
use base::error::Result;
use ddp::device::is_host;
use record::{Digest, DigestGroup};

/// The state of a training between two steps.
pub(super) struct TrainState {
    pub model: Box<dyn Model>,
    pub updater: Updater,
    /// With `[ema]`.
    pub average: Option<WeightAverage>,
    /// After the last step whose sums are known.
    pub position: Position,
}

impl TrainState {
    /// The model's tensors are in host memory.
    pub fn is_in_host_memory(&self) -> bool {
        is_host(self.model.device())
    }

    /// What a checkpoint has tensors of.
    pub fn tensors(&self) -> RunTensors<'_> {
        RunTensors { model: &*self.model, updater: &self.updater, average: self.average.as_ref() }
    }

    /// Updates the average of the weights, if there is one, after an update; `update` counts them.
    pub fn follow_weights(&mut self, update: u64) -> Result<()> {
        let Some(average) = &mut self.average else { return Ok(()) };
        average.follow(&mut *self.model, update, self.position.ema.get_or_insert(0))
    }

    /// Exchanges the average of the weights, if there is one, and the model's.
    pub fn swap_average(&mut self) -> Result<()> {
        self.average.as_mut().map_or(Ok(()), |average| average.swap(&mut *self.model))
    }

    /// Changes a bit of the first parameter, without an error.
    pub fn flip_a_bit(&mut self) {
        let first = self.model.entries().iter().position(|entry| entry.trainable() && entry.numel() > 0);
        let flipped = self.model.edit(&|index| Some(index) == first, &mut |_, values| {
            // Large enough for every later sum to differ, and finite as before.
            values[0] = f32::from_bits(values[0].to_bits() ^ (1 << 20));
        });
        if let Err(e) = flipped {
            tracing::warn!("no bit was flipped: {}", e.message);
        }
    }

    /// The digests of all tensors, of the model's entries that are `included`. Waits for a device.
    ///
    /// # Errors
    /// The device fails.
    pub fn digests(
        &self,
        included: impl Fn(&StateEntry) -> bool,
        digest: impl Fn(&StateEntry, &[f32]) -> Digest,
    ) -> Result<Vec<(DigestGroup, String, Digest)>> {
        let (entries, mut all, mut done) = (self.model.entries(), Vec::new(), Ok(()));
        self.model.read(ALL, &mut |index, values| {
            let entry = &entries[index];
            if !included(entry) {
                return;
            }
            let group = if entry.role.is_buffer() { DigestGroup::Buffer } else { DigestGroup::Parameter };
            all.push((group, entry.name.clone(), digest(entry, values)));
            let Some(average) = self.average.as_ref().filter(|_| done.is_ok()) else { return };
            let averaged = average.read(index, values, |values| digest(entry, values));
            done = averaged.map(|digest| all.push((DigestGroup::Average, entry.name.clone(), digest)));
        })?;
        done?;
        for (index, slot, name) in self.updater.arrays(entries) {
            let digest = self.updater.state().read(index, slot, |values| digest(&entries[index], values))?;
            all.push((DigestGroup::Optimizer, name, digest));
        }
        Ok(all)
    }
}
