//! The number of processes and nodes.

use ddp::device::DeviceSpec;
use launch::Nproc;
use launch::cores::usable_cores;
use launch::memory::{self, UsableMemory};
use serde::Serialize;

/// The processes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct World {
    /// Number of nodes; the maximum if nodes may join and leave.
    pub nnodes: usize,
    /// Number of processes on each node.
    pub nproc_per_node: usize,
    /// Total number of processes.
    pub world_size: usize,
}

/// What the command line, a launcher and the machine specify about the number of processes. Anything that is `None` is
/// taken from `[launch]`.
#[derive(Clone, Copy, Debug)]
pub struct WorldRequest {
    /// The total number of processes, overriding the spec (`plan --world`, or WORLD_SIZE under a launcher).
    pub world_size: Option<usize>,
    /// Number of nodes.
    pub nnodes: Option<usize>,
    /// Processes on each node: a number, or how to determine it from devices and cores.
    pub nproc_per_node: Option<Nproc>,
    /// Processes on this machine, if a launcher starts each.
    pub local: Option<usize>,
    /// Usable cores of a node, for `nproc_per_node = "auto"` and `"cpu"`.
    pub cores: usize,
    /// Number of devices of a kind on a node. `check` does not count devices and uses 0.
    pub devices: fn(DeviceSpec) -> usize,
    /// The memory of this machine, for warnings; `None` if unknown.
    pub memory: Option<UsableMemory>,
    /// What the plan is for; decides how batches are checked.
    pub purpose: Purpose,
}

/// What a plan is for: how the training samples divide into batches concerns those that train.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// The use of a trained model: its batches need not be those of a training.
    Use,
    /// Training, maybe from a checkpoint, whose position decides which batches there are.
    #[default]
    Train,
    /// Training from the beginning.
    Start,
}

impl Default for WorldRequest {
    fn default() -> Self {
        Self {
            world_size: None,
            nnodes: None,
            nproc_per_node: None,
            local: None,
            cores: usable_cores(),
            devices: |_| 0,
            memory: memory::usable(),
            purpose: Purpose::default(),
        }
    }
}

impl WorldRequest {
    /// The same, for another purpose.
    pub fn to(self, purpose: Purpose) -> Self {
        Self { purpose, ..self }
    }

    /// Exactly this many processes.
    pub fn new(world_size: usize) -> Self {
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
    use crate::plan::Plan;
    use crate::registry::Registry;
    use spec::{JobTree, Override};

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
        assert_eq!(world(WorldRequest::new(16), 1, 4), (1, 16, 16));
        assert_eq!(world(WorldRequest::new(16), 2, 4), (2, 8, 16));
        assert_eq!(world(WorldRequest::new(7), 2, 4), (1, 7, 7));
        assert_eq!(world(WorldRequest::new(12), 5, 4), (3, 4, 12));
    }

    /// Of 33 samples, one process has a last batch of one; two processes, which may have trained the model, have none.
    #[test]
    fn batches_of_the_training_concern_runs_and_not_the_use_of_their_models() {
        let text = "name = 'a'\nbatch_size = 32\nmodel.name = 'resnet18'\noptimizer.name = 'sgd'\n[dataset]\n\
                    name = 'shapes'\ntrain = 33\nsize = 16\n";
        let of = |purpose: Purpose, sets: &[&str]| {
            let sets: Vec<Override> = sets.iter().map(|set| Override::Set((*set).to_owned())).collect();
            let tree = JobTree::parse("job.toml", text, &sets);
            Plan::resolve(&tree, &Registry::standard(), WorldRequest::new(1).to(purpose))
        };
        let all = [Purpose::Use, Purpose::Train, Purpose::Start];
        let accepted = |sets: &[&str]| all.map(|purpose| of(purpose, sets).is_ok());
        assert_eq!(accepted(&[]), [true, true, false]);
        assert_eq!(accepted(&["dataset.drop_last=true"]), [true; 3]);
        assert_eq!(accepted(&["train.accumulate=3"]), [true, false, false]);
        // A run that begins checks it, too.
        assert!(of(Purpose::Train, &[]).unwrap().may_start().is_err());
        assert!(of(Purpose::Train, &["train.max_steps=1"]).unwrap().may_start().is_ok());
    }
}
