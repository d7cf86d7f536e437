//! Digests of a step's tensors, for `digests.jsonl`: of its inputs, averaged gradients and results. Arrays are
//! digested in the layout of the state dict.

use super::state::TrainState;
use crate::models::{Layout, StateEntry};
use base::error::Result;
use burn::tensor::Tensor;
use collectives::ProcessGroup;
use data::{FieldData, HostBatch};
use ddp::Reducer;
use ddp::device::read;
use record::{Digest, DigestGroup, DigestLine};

/// The digests of the samples of a step, by field. That of a field is the sum over the samples of digests that
/// depend on the place of the sample in the step: the same for any number of ranks that share the same samples.
#[derive(Default)]
pub(super) struct InputDigests {
    fields: Vec<(String, u128)>,
    /// Samples of this rank so far.
    samples: u64,
}

impl InputDigests {
    /// Adds a micro-batch of `rank` of `world`, before it is mixed.
    pub(super) fn add(&mut self, batch: &HostBatch, rank: usize, world: usize) {
        let first = self.samples;
        self.samples += batch.len as u64;
        // The sampler deals the samples of a step out in turn.
        let place = |sample: usize| rank as u64 + world as u64 * (first + sample as u64);
        let count = batch.len;
        self.sum("index", count, |i| Digest::seeded(&batch.indices[i].to_le_bytes(), place(i)));
        let own = [("input".to_owned(), &batch.input), ("target".to_owned(), &batch.target)];
        let further = batch.fields.iter().map(|(name, field)| (format!("field.{name}"), field));
        for (name, field) in own.into_iter().chain(further) {
            let bytes: &[u8] = match &field.data {
                FieldData::Float(values) => bytemuck::cast_slice(values),
                FieldData::Index(values) => bytemuck::cast_slice(values),
                FieldData::Bytes(values) => values,
            };
            let each = bytes.len() / count.max(1);
            self.sum(&name, count, |i| Digest::seeded(&bytes[i * each..(i + 1) * each], place(i)));
        }
        // Of images that a device transforms: the random draws of each.
        if !batch.draws.is_empty() {
            self.sum("draws", count, |i| {
                Digest::seeded(format!("{:?}", batch.draws[i]).as_bytes(), place(i))
            });
        }
    }

    fn sum(&mut self, name: &str, count: usize, of_sample: impl Fn(usize) -> Digest) {
        let sum = (0..count).fold(0u128, |sum, sample| sum.wrapping_add(of_sample(sample).0));
        match self.fields.iter_mut().find(|(field, _)| field == name) {
            Some((_, all)) => *all = all.wrapping_add(sum),
            None => self.fields.push((name.to_owned(), sum)),
        }
    }

    /// The digests over all ranks. A collective.
    fn exchange(self, group: &dyn ProcessGroup) -> Result<Vec<(String, Digest)>> {
        let own: Vec<Digest> = self.fields.iter().map(|(_, sum)| Digest(*sum)).collect();
        let ranks = gathered(&own, group)?;
        let sum = |field: usize| ranks.iter().fold(0u128, |sum, rank| sum.wrapping_add(rank[field].0));
        Ok(self.fields.into_iter().enumerate().map(|(i, (name, _))| (name, Digest(sum(i)))).collect())
    }
}

/// The `own` digests of every rank, equally many, in rank order. A collective.
///
/// # Errors
/// A failed collective.
pub(super) fn gathered(own: &[Digest], group: &dyn ProcessGroup) -> Result<Vec<Vec<Digest>>> {
    // A model without tensors has no digests.
    if own.is_empty() {
        return Ok(vec![Vec::new(); group.world_size()]);
    }
    let bytes: Vec<u8> = own.iter().flat_map(|digest| digest.0.to_le_bytes()).collect();
    let mut all = vec![0u8; bytes.len() * group.world_size()];
    group.all_gather(bytes.as_slice().into(), all.as_mut_slice().into())?;
    let digest = |bytes: &[u8; 16]| Digest(u128::from_le_bytes(*bytes));
    let of_rank = |bytes: &[u8]| -> Vec<Digest> { bytes.as_chunks::<16>().0.iter().map(digest).collect() };
    Ok(all.chunks_exact(bytes.len()).map(of_rank).collect())
}

/// The digest of an array in the module's layout, of an entry or of the same shape.
pub(super) fn of_array(entry: &StateEntry, values: &[f32]) -> Digest {
    match entry.layout {
        Layout::Transposed if values.len() == entry.numel() => {
            Digest::new(bytemuck::cast_slice(&entry.to_dict(values)))
        }
        Layout::Transposed | Layout::Same => Digest::new(bytemuck::cast_slice(values)),
    }
}

/// The digests of the current step.
pub type StepDigests = Option<Box<DigestLine>>;

/// Begins the digests of step number `step` with its inputs, on rank 0; the other ranks only take part. A collective.
pub(super) fn begin(
    inputs: Option<InputDigests>,
    step: u64,
    epoch: u64,
    group: &dyn ProcessGroup,
) -> Result<StepDigests> {
    let Some(inputs) = inputs else { return Ok(None) };
    let inputs = inputs.exchange(group)?;
    if group.rank() != 0 {
        return Ok(None);
    }
    let mut line = DigestLine::new(step, epoch, group.world_size());
    inputs.iter().for_each(|(name, digest)| line.add(DigestGroup::Input, name, *digest));
    Ok(Some(Box::new(line)))
}

/// Adds the averaged gradients, which are in host memory.
pub(super) fn add_gradients(digests: &mut StepDigests, entries: &[StateEntry], reducer: &Reducer) {
    let Some(line) = digests else { return };
    reducer.with_buckets(|buckets| {
        for (index, entry) in entries.iter().enumerate() {
            let Some(slot) = reducer.slot(index) else { continue };
            let values = &buckets[slot.bucket][slot.offset..slot.offset + slot.len];
            line.add(DigestGroup::Gradient, &entry.name, of_array(entry, values));
        }
    });
}

/// Adds the averaged gradients, which are on a device, by parameter. Waits for the device.
///
/// # Errors
/// The device fails.
pub(super) fn add_device_gradients(
    digests: &mut StepDigests,
    entries: &[StateEntry],
    gradients: &[Option<Tensor<1>>],
) -> Result<()> {
    let Some(line) = digests else { return Ok(()) };
    for (entry, gradient) in entries.iter().zip(gradients) {
        let Some(gradient) = gradient.clone().filter(|gradient| gradient.dims()[0] > 0) else { continue };
        line.add(DigestGroup::Gradient, &entry.name, of_array(entry, &read(gradient)?));
    }
    Ok(())
}

/// Adds the step's results: buffers, optimizer state, parameters, averaged weights. Waits for a device.
///
/// # Errors
/// The device fails.
pub(super) fn add_state(digests: &mut StepDigests, state: &TrainState) -> Result<()> {
    let Some(line) = digests else { return Ok(()) };
    let all = state.digests(|_| true, of_array)?;
    all.iter().for_each(|(group, name, digest)| line.add(*group, name, *digest));
    Ok(())
}

#[cfg(test)]
#[path = "digests_tests.rs"]
mod tests;
