//! Checks that the ranks' devices fit together, before anything is computed: `auto` selects a device on each machine
//! independently, and a launcher may assign one GPU to two ranks.

use super::exchange::gathered;
use base::error::{Error, Result};
use collectives::{GpuUuid, ProcessGroup, nccl, on_one_gpu};
use ddp::device::ComputeDevice;

/// The kind of a rank's device, and the UUID of its GPU where known.
pub(super) type Entry = (String, Option<GpuUuid>);

/// Compares the devices of all ranks. Collective: all ranks call it.
///
/// # Errors
/// The same on all ranks: devices of different kinds, or several ranks on one GPU that they may not share (exit 69).
/// A failed collective.
pub(super) fn check_devices(device: ComputeDevice, may_share: bool, group: &dyn ProcessGroup) -> Result<()> {
    compare(&gathered(&entry(device), group)?, may_share)
}

pub(super) fn entry(device: ComputeDevice) -> Entry {
    match device {
        ComputeDevice::Cpu => ("cpu".to_owned(), None),
        // If there is none, opening the device reports why.
        ComputeDevice::Cuda(index) => ("cuda".to_owned(), nccl::gpu_uuid(index).ok()),
        ComputeDevice::Wgpu(_) => ("wgpu".to_owned(), None),
    }
}

pub(super) fn compare(entries: &[Entry], may_share: bool) -> Result<()> {
    let first = &entries[0].0;
    if let Some((other, (kind, _))) = entries.iter().enumerate().find(|(_, (kind, _))| kind != first) {
        let message = format!("rank 0 uses `{first}`, but rank {other} uses `{kind}`");
        return Err(Error::unavailable(message)
            .hint("run `ddp-run env` on each node to list its devices, and why others are unavailable"));
    }
    let gpus: Vec<Option<GpuUuid>> = entries.iter().map(|(_, uuid)| *uuid).collect();
    let Some(shared) = on_one_gpu(&gpus, |_, _| may_share) else { return Ok(()) };
    Err(Error::unavailable(shared.to_string()).hint(
        "start one process per GPU; or, to share GPUs without NCCL, set `share_devices = true` in `[launch]` and `backend = \"auto\"` or \
         `\"gloo\"`",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::ErrorKind;

    fn on_gpu(uuid: Option<u8>) -> Entry {
        ("cuda".to_owned(), uuid.map(|byte| GpuUuid([byte; 16])))
    }

    #[track_caller]
    fn assert_refused(entries: &[Entry], message: &str) {
        let error = compare(entries, false).expect_err(message);
        assert_eq!((error.kind, &*error.message), (ErrorKind::Unavailable, message));
    }

    #[test]
    fn accepts_devices_of_one_kind_and_names_the_first_rank_on_another() {
        let [cpu, wgpu] = [ComputeDevice::Cpu, ComputeDevice::Wgpu(0)].map(entry);
        let two_gpus = [1, 2].map(|uuid| on_gpu(Some(uuid)));
        let twice = [&cpu, &wgpu, &on_gpu(None)].map(|one| [one.clone(), one.clone()]);
        for entries in twice.into_iter().chain([two_gpus]) {
            assert!(compare(&entries, false).is_ok(), "{entries:?}");
        }
        let others = [wgpu.clone(), wgpu, cpu.clone()];
        assert_refused(&others, "rank 0 uses `wgpu`, but rank 2 uses `cpu`");
        assert_refused(&[cpu, on_gpu(Some(1))], "rank 0 uses `cpu`, but rank 1 uses `cuda`");
    }

    /// With any backend, two ranks on one GPU halve each other's speed and memory.
    #[test]
    fn names_ranks_that_share_a_gpu_without_permission() {
        let entries = [2, 1, 3, 1].map(|uuid| on_gpu(Some(uuid)));
        let uuid = "GPU-01010101-0101-0101-0101-010101010101";
        assert_refused(&entries, &format!("ranks 1 and 3 have the same GPU, {uuid}"));
        assert!(compare(&entries, true).is_ok());
    }
}
