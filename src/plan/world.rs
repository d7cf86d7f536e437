//! The number of processes and nodes.

use crate::device::DeviceSpec;
use crate::launch::Nproc;
use crate::launch::cores::usable_cores;
use serde::Serialize;

/// The processes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct World {
    pub nnodes: usize,
    pub nproc_per_node: usize,
    pub world_size: usize,
}

/// What the command line, a launcher and the machine specify about the number of processes. Anything that is `None` is
/// taken from `[launch]`.
#[derive(Clone, Copy, Debug)]
pub struct WorldRequest {
    /// The total number of processes, overriding the spec (`plan --world`, or WORLD_SIZE under a launcher).
    pub world_size: Option<usize>,
    pub nnodes: Option<usize>,
    pub nproc_per_node: Option<Nproc>,
    /// Usable cores of a node, for `nproc_per_node = "auto"` and `"cpu"`.
    pub cores: usize,
    /// Number of devices of a kind on a node. `check` does not count devices and uses 0.
    pub devices: fn(DeviceSpec) -> usize,
}

impl Default for WorldRequest {
    fn default() -> Self {
        Self { world_size: None, nnodes: None, nproc_per_node: None, cores: usable_cores(), devices: |_| 0 }
    }
}

impl WorldRequest {
    /// Exactly this many processes.
    pub fn of(world_size: usize) -> Self {
        Self { world_size: Some(world_size), ..Self::default() }
    }

    pub(super) fn resolve(&self, nnodes: usize, nproc_per_node: Nproc, device: DeviceSpec) -> World {
        let nnodes = self.nnodes.unwrap_or(nnodes).max(1);
        let nproc = self.nproc_per_node.unwrap_or(nproc_per_node);
        // `gpu` on a machine without any is an error when the job starts there, not when it is planned.
        let devices = || if device.index().is_some() { 1 } else { (self.devices)(device) };
        let nproc = nproc.resolve(self.cores, devices).unwrap_or(1).max(1);
        match self.world_size {
            None => World { nnodes, nproc_per_node: nproc, world_size: nnodes.saturating_mul(nproc) },
            Some(world) if nnodes > 1 && world.is_multiple_of(nnodes) => {
                World { nnodes, nproc_per_node: world / nnodes, world_size: world }
            }
            Some(world) if nnodes == 1 || !world.is_multiple_of(nproc) => {
                World { nnodes: 1, nproc_per_node: world, world_size: world }
            }
            Some(world) => World { nnodes: world / nproc, nproc_per_node: nproc, world_size: world },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(request: WorldRequest, nnodes: usize, nproc: usize) -> (usize, usize, usize) {
        let w = request.resolve(nnodes, Nproc::Count(nproc), DeviceSpec::Auto);
        (w.nnodes, w.nproc_per_node, w.world_size)
    }

    #[test]
    fn command_line_overrides_the_spec() {
        assert_eq!(world(WorldRequest::default(), 2, 4), (2, 4, 8));
        let request = WorldRequest { nproc_per_node: Some(Nproc::Count(3)), ..WorldRequest::default() };
        assert_eq!(world(request, 2, 4), (2, 3, 6));
    }

    #[test]
    fn defaults_to_a_process_per_device() {
        let devices: fn(DeviceSpec) -> usize = |device| if device == DeviceSpec::Cpu { 0 } else { 8 };
        let request = WorldRequest { cores: 16, devices, ..WorldRequest::default() };
        let nproc = |nproc, device| request.resolve(1, nproc, device).nproc_per_node;
        assert_eq!(nproc(Nproc::Devices, DeviceSpec::Auto), 8);
        assert_eq!(nproc(Nproc::Devices, DeviceSpec::Cuda(Some(1))), 1);
        assert_eq!(nproc(Nproc::Devices, DeviceSpec::Cpu), 1);
        assert_eq!(nproc(Nproc::Auto, DeviceSpec::Cpu), 16);
        assert_eq!(nproc(Nproc::Gpu, DeviceSpec::Auto), 8);
    }

    #[test]
    fn a_given_world_size_overrides_the_spec() {
        assert_eq!(world(WorldRequest::of(16), 1, 4), (1, 16, 16));
        assert_eq!(world(WorldRequest::of(16), 2, 4), (2, 8, 16));
        assert_eq!(world(WorldRequest::of(7), 2, 4), (1, 7, 7));
        assert_eq!(world(WorldRequest::of(12), 5, 4), (3, 4, 12));
    }
}
