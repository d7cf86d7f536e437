//! Whole runs whose ranks are threads of this process, for this module's tests.

use super::{RankJob, RecorderOptions, Resume, train};
use crate::plan::Plan;
pub use crate::plan::testing::resolved;
use crate::registry::Registry;
use base::error::Result;
use burn::module::{Module, ModuleMapper, Param};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor, TensorData};
use checkpoint::{CheckpointStore, Loaded, load};
use collectives::{ProcessGroup, SoloGroup, spawn};
use ddp::device::ComputeDevice;
use record::history::{Start, checkpoints};
use record::{Event, ProgressMode, Provenance, RunId, provenance, read_events};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use train::training::TrainingEnd;

/// A regression with eight steps per epoch, and 16 samples for evaluation.
pub const SPEC: &str = "name = \"run\"\nseed = 3\nepochs = 6\nbatch_size = 8\n\
    [model]\nname = \"linear\"\n\
    [dataset]\nname = \"random\"\nsamples = 80\nfeatures = 4\nval_split = 0.2\nworkers = 0\n\
    [optimizer]\nname = \"sgd\"\nlr = 0.05\n\
    [metrics]\nlog_every = 1\n";

pub fn plan(spec: &str, sets: &[&str], world: usize) -> Plan {
    resolved(&Registry::standard(), spec, sets, world).unwrap_or_else(|e| panic!("{e}"))
}

/// Whether all numbers are equal but for rounding.
pub fn close(a: &[[f64; 2]], b: &[[f64; 2]]) -> bool {
    a.len() == b.len() && a.iter().flatten().zip(b.iter().flatten()).all(|(a, b)| (a / b - 1.0).abs() < 1e-5)
}

/// Initial values that do not depend on a random stream: ranks are threads here and share one. A
/// lazy parameter stays lazy. Running state, which is not lazy, stays as it is.
pub struct Fixed;

impl ModuleMapper for Fixed {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if param.is_initialized() {
            return param;
        }
        param.init_mapper(|drawn| {
            let shape = drawn.shape();
            let values: Vec<f32> =
                (0..shape.num_elements()).map(|i| 0.6 * ((i * i + 3 * i + 1) as f32).sin()).collect();
            Tensor::from_data(TensorData::new(values, shape), &drawn.device())
        })
    }
}

/// A layer with [`Fixed`] values.
pub fn fixed(inputs: usize, outputs: usize, device: &Device) -> Linear {
    LinearConfig::new(inputs, outputs).with_bias(false).init(device).map(&mut Fixed)
}

/// The provenance of a start in a test.
pub fn provenance(plan: &Plan) -> Provenance {
    Provenance::gather(provenance::Start {
        name: &plan.name,
        spec_hash: &plan.hash,
        source_dir: Path::new("."),
        world: plan.world.world_size,
        devices: vec!["cpu".to_owned(); plan.world.world_size],
        backend: "gloo",
        launcher: "a test",
        versions: crate::versions::here(),
        run: RunId { start: RunId::draw().unwrap(), ..RunId::default() },
    })
}

/// Trains `plan` with one thread per rank; a stop is requested in step `stop_at`.
pub fn trained(plan: &Plan, out_dir: &Path, stop_at: u64) -> Result<TrainingEnd> {
    std::fs::create_dir_all(out_dir).unwrap();
    let provenance = provenance(plan);
    let rank = |group: Arc<dyn ProcessGroup>| {
        let steps = std::cell::Cell::new(0);
        let stop = || {
            steps.set(steps.get() + 1);
            steps.get() >= stop_at
        };
        train(RankJob {
            plan,
            local_rank: group.rank(),
            group,
            device: ComputeDevice::Cpu,
            out_dir,
            resume: Resume::Auto,
            start: Some(Start { out_dir, provenance: &provenance, job_toml: "" }),
            stop: &stop,
            failed: &|_| true,
            recorder: RecorderOptions { progress: ProgressMode::None, ..RecorderOptions::default() },
            profile: None,
        })
    };
    if plan.world.world_size == 1 {
        return rank(Arc::new(SoloGroup::default()));
    }
    let ended = spawn(plan.world.world_size, |group| Ok(rank(group))).unwrap();
    let both = |a: Result<TrainingEnd>, b: Result<TrainingEnd>| {
        if let (Ok(a), Ok(b)) = (&a, &b) {
            assert_eq!(a, b, "all ranks end in the same way");
        }
        a.and(b)
    };
    ended.into_iter().reduce(both).unwrap()
}

/// A run's folder and spec.
pub struct TestRun {
    dir: tempfile::TempDir,
    registry: Registry,
    spec: String,
}

impl TestRun {
    pub fn new(spec: &str) -> Self {
        Self::with(Registry::standard(), spec)
    }

    /// A run with the components of `registry`.
    pub fn with(registry: Registry, spec: &str) -> Self {
        Self { dir: tempfile::tempdir().unwrap(), registry, spec: spec.to_owned() }
    }

    pub fn out(&self) -> &Path {
        self.dir.path()
    }

    pub fn plan(&self, world: usize, sets: &[&str]) -> Plan {
        resolved(&self.registry, &self.spec, sets, world).unwrap_or_else(|e| panic!("{e}"))
    }

    /// A copy of this run at the same position.
    pub fn copied(&self) -> Self {
        let other = Self::with(self.registry.clone(), &self.spec);
        let checkpoint = self.newest();
        let to = checkpoints(other.out()).join(checkpoint.file_name().unwrap());
        std::fs::create_dir_all(&to).unwrap();
        for file in std::fs::read_dir(&checkpoint).unwrap().map(Result::unwrap) {
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
        let metrics = "metrics.jsonl";
        std::fs::copy(self.out().join(metrics), other.out().join(metrics)).unwrap();
        other
    }

    /// Continues training from the folder's newest checkpoint.
    pub fn train(&self, world: usize, sets: &[&str]) -> Result<TrainingEnd> {
        self.until(world, sets, u64::MAX)
    }

    /// The same, with a stop request that the ranks see in step `stop_at`.
    pub fn until(&self, world: usize, sets: &[&str], stop_at: u64) -> Result<TrainingEnd> {
        trained(&self.plan(world, sets), self.out(), stop_at)
    }

    /// Trains to the end, with a stop after each of these numbers of steps.
    #[track_caller]
    pub fn in_parts(&self, world: usize, sets: &[&str], stops: &[u64]) {
        for stop_after in stops {
            assert_eq!(self.until(world, sets, *stop_after).unwrap(), TrainingEnd::Stopped);
        }
        assert_eq!(self.train(world, sets).unwrap(), TrainingEnd::Done);
    }

    /// Asserts that both runs had the same steps and epochs, and have the same tensors.
    #[track_caller]
    pub fn assert_same(&self, other: &Self) {
        assert_eq!((self.steps(), self.epochs()), (other.steps(), other.epochs()));
        assert!(self.bits() == other.bits(), "other tensors");
    }

    pub fn store(&self) -> CheckpointStore {
        CheckpointStore::read_only(checkpoints(self.out()))
    }

    /// The steps of the checkpoints that are kept.
    pub fn kept(&self) -> Vec<u64> {
        self.store().list().unwrap().iter().map(|entry| entry.step).collect()
    }

    pub fn newest(&self) -> PathBuf {
        self.store().list().unwrap().pop().unwrap().path
    }

    pub fn loaded(&self) -> Loaded {
        load(&self.newest()).unwrap()
    }

    /// The bytes of the newest checkpoint's model and optimizer.
    pub fn bits(&self) -> [Vec<u8>; 2] {
        ["model", "optimizer"]
            .map(|name| std::fs::read(self.newest().join(format!("{name}.safetensors"))).unwrap())
    }

    pub fn events(&self) -> Vec<Event> {
        read_events(&self.out().join("metrics.jsonl")).unwrap()
    }

    /// Step, learning rate and loss of each `step` line.
    pub fn steps(&self) -> Vec<(u64, f64, f64)> {
        let step = |event| if let Event::Step(e) = event { Some((e.step, e.lr, e.loss)) } else { None };
        self.events().into_iter().filter_map(step).collect()
    }

    /// A metric of each `epoch` line: of training, and of the evaluation.
    pub fn measured(&self, name: &str) -> Vec<[f64; 2]> {
        let epoch = |event| {
            let Event::Epoch(e) = event else { return None };
            Some([e.train.get(name).unwrap(), e.val.unwrap().get(name).unwrap()])
        };
        self.events().into_iter().filter_map(epoch).collect()
    }

    /// Epoch, step, training loss and validation loss of each `epoch` line.
    pub fn epochs(&self) -> Vec<(u64, u64, f64, Option<f64>)> {
        let epoch = |event| {
            let Event::Epoch(e) = event else { return None };
            Some((e.epoch, e.step, e.train.get("loss")?, e.val.and_then(|val| val.get("loss"))))
        };
        self.events().into_iter().filter_map(epoch).collect()
    }
}
