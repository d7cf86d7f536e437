//! Checks that the ranks' devices fit together, before anything is computed: `auto` selects a device on each machine
//! independently, and a launcher may assign one GPU to two ranks.

use super::gathered;
use crate::comm::{GpuUuid, ProcessGroup, nccl, on_one_gpu};
use crate::device::ComputeDevice;
use crate::error::{Error, Result};

/// The kind of device, and the UUID of a GPU where known.
const ENTRY_LEN: usize = 1 + 16;
type Entry = [u8; ENTRY_LEN];

const KINDS: [&str; 3] = ["cpu", "cuda", "wgpu"];
const CUDA: u8 = 1;

/// Compares the devices of all ranks. Collective: all ranks call it.
///
/// # Errors
/// The same on all ranks: devices of different kinds, or several ranks on one GPU that they may not share (exit 69).
/// A failed collective.
pub(super) fn check_devices(device: ComputeDevice, may_share: bool, group: &dyn ProcessGroup) -> Result<()> {
    compare(&gathered(&entry(device), group)?, may_share)
}

pub(super) fn entry(device: ComputeDevice) -> Entry {
    let (kind, uuid) = match device {
        ComputeDevice::Cpu => (0, None),
        // If there is none, opening the device reports why.
        ComputeDevice::Cuda(index) => (CUDA, nccl::gpu_uuid(index).ok()),
        ComputeDevice::Wgpu(_) => (2, None),
    };
    let mut entry = [0; ENTRY_LEN];
    entry[0] = kind;
    if let Some(GpuUuid(bytes)) = uuid {
        entry[1..].copy_from_slice(&bytes);
    }
    entry
}

/// The GPU's UUID, if known.
fn gpu([_, uuid @ ..]: &Entry) -> Option<GpuUuid> {
    (*uuid != [0; 16]).then_some(GpuUuid(*uuid))
}

pub(super) fn compare(entries: &[Entry], may_share: bool) -> Result<()> {
    if let Some(other) = entries.iter().position(|entry| entry[0] != entries[0][0]) {
        let name = |rank: usize| KINDS.get(usize::from(entries[rank][0])).copied().unwrap_or("?");
        let message = format!("rank 0 uses `{}`, but rank {other} uses `{}`", name(0), name(other));
        return Err(Error::unavailable(message)
            .hint("run `ddp-run env` on each node to list its devices, and why others are unavailable"));
    }
    let gpus: Vec<Option<GpuUuid>> = entries.iter().map(gpu).collect();
    let Some(shared) = on_one_gpu(&gpus, |_, _| may_share) else { return Ok(()) };
    Err(Error::unavailable(shared.to_string()).hint(
        "start one process per GPU; or, to share GPUs without NCCL, set `share_devices = true` in `[launch]` and `backend = \"auto\"` or \
         `\"gloo\"`",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ExitCode;

    fn on_gpu(uuid: u8) -> Entry {
        let mut entry = [uuid; ENTRY_LEN];
        entry[0] = CUDA;
        entry
    }

    #[track_caller]
    fn assert_refused(entries: &[Entry], message: &str) {
        let error = compare(entries, false).expect_err(message);
        assert_eq!((error.code, &*error.message), (ExitCode::Unavailable, message));
    }

    #[test]
    fn accepts_devices_of_one_kind_and_names_the_first_rank_on_another() {
        let [cpu, wgpu] = [ComputeDevice::Cpu, ComputeDevice::Wgpu(0)].map(entry);
        for entries in [[cpu, cpu], [wgpu, wgpu], [on_gpu(1), on_gpu(2)], [on_gpu(0), on_gpu(0)]] {
            assert!(compare(&entries, false).is_ok(), "{entries:?}");
        }
        assert_refused(&[wgpu, wgpu, cpu], "rank 0 uses `wgpu`, but rank 2 uses `cpu`");
        assert_refused(&[cpu, on_gpu(1)], "rank 0 uses `cpu`, but rank 1 uses `cuda`");
    }

    /// With any backend, two ranks on one GPU halve each other's speed and memory.
    #[test]
    fn names_ranks_that_share_a_gpu_without_permission() {
        let entries = [on_gpu(2), on_gpu(1), on_gpu(3), on_gpu(1)];
        let uuid = "GPU-01010101-0101-0101-0101-010101010101";
        assert_refused(&entries, &format!("ranks 1 and 3 have the same GPU, {uuid}"));
        assert!(compare(&entries, true).is_ok());
    }
}
