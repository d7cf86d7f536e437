//! The parts of a plan, one for each component that runs from it.

use crate::checkpoint::Direction;
use crate::comm::gloo::{AlgorithmChoice, GlooOptions, Transport};
use crate::data::{DataFacts, DatasetSource, FieldFacts};
use crate::ddp::HookSource;
use crate::error::Error;
use crate::launch::Nproc;
use crate::models::ModelSource;
use crate::nodes::{NodeRange, RdzvEndpoint};
use crate::train::{BufferSync, OnResize};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// `[model]`
#[derive(Clone)]
pub struct ModelPlan {
    pub name: String,
    pub source: Arc<dyn ModelSource>,
    /// PyTorch weights to start from: `.safetensors` or `.pt`.
    pub pretrained: Option<PathBuf>,
    /// Whether every tensor of the model must be in them, with its shape.
    pub pretrained_strict: bool,
}

impl fmt::Debug for ModelPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelPlan")
            .field("name", &self.name)
            .field("pretrained", &self.pretrained)
            .field("pretrained_strict", &self.pretrained_strict)
            .finish_non_exhaustive()
    }
}

/// `[dataset]`, less what concerns loading.
#[derive(Clone, Debug)]
pub struct DatasetPlan {
    pub name: String,
    pub source: Arc<dyn DatasetSource>,
    pub facts: DataFacts,
}

/// `[dataset]`: how batches are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LoaderPlan {
    pub shuffle: bool,
    /// Leave out the samples that would make an epoch uneven: no padding, no short last batch.
    pub drop_last: bool,
    /// Threads that assemble batches; 0 assembles each in the training thread.
    pub workers: usize,
    /// Batches that are assembled ahead.
    pub prefetch: usize,
}

/// `[train]`, less the loss.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainPlan {
    /// Micro-batches per optimizer step.
    pub accumulate: usize,
    /// Largest global L2 norm of the gradients.
    pub clip_norm: Option<f64>,
    /// End after so many optimizer steps, even in mid-epoch.
    pub max_steps: Option<u64>,
    /// Epochs between evaluations; 0 for never.
    pub eval_every: u64,
    pub buffers: BufferSync,
    pub on_resize: OnResize,
}

/// What a run does about a stop signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnPreempt {
    /// Save at the next step boundary, then end.
    Save,
    /// End at the next step boundary; the last checkpoint continues the run.
    Exit,
}

/// `[checkpoint]`
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckpointPlan {
    /// Newest checkpoints to keep; 0 keeps all.
    pub keep_last: usize,
    /// Best checkpoints to keep besides.
    pub keep_best: usize,
    /// Metric that ranks them, as `metrics.jsonl` names it: `val.loss`.
    pub best: String,
    /// Whether small or large values of it are good.
    pub direction: Direction,
    /// Where tensors go that were saved on a device: `cuda:0` to `cuda:2`. By default each rank loads to its own.
    pub map_location: BTreeMap<String, String>,
    /// Write while training goes on.
    #[serde(rename = "async")]
    pub asynchronous: bool,
    pub on_preempt: OnPreempt,
    /// How long a run may take from a stop signal to its end; then it is ended.
    pub grace: Duration,
}

impl CheckpointPlan {
    /// Checks the ranking metric against the opened data's targets, which the spec may not have known.
    ///
    /// # Errors
    /// A metric that is not measured of them (exit 78).
    pub fn fits(&self, target: &FieldFacts) -> Result<(), Error> {
        let error = |why| {
            Error::spec(why)
                .hint("`best` in `[checkpoint]` names the metric; \"val.loss\" fits every data set")
        };
        super::checks::unmeasured(&self.best, target).map_or(Ok(()), |why| Err(error(why)))
    }
}

/// `[metrics]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MetricsPlan {
    /// Optimizer steps between step events.
    pub log_every: u64,
    /// Whether to report top-5 accuracy. `None`: whether there are more than five classes is known once the data
    /// is open.
    pub top5: Option<bool>,
}

impl MetricsPlan {
    /// Whether to report top-5 accuracy over so many classes.
    pub fn reports_top5(&self, classes: usize) -> bool {
        self.top5.unwrap_or(classes > 5)
    }
}

/// `[launch]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchPlan {
    pub nproc_per_node: Nproc,
    pub nnodes: NodeRange,
    /// Where the nodes' supervisors meet; the command line may say it too.
    pub rdzv_endpoint: Option<RdzvEndpoint>,
    /// Restarts after failures, without progress in between.
    pub max_restarts: u32,
    /// How long the other nodes wait for one that was lost.
    pub rejoin_timeout: Duration,
    /// Ask Slurm to start the job again when it was stopped on request.
    pub requeue: bool,
    /// Compute threads of each worker; by default cores / workers.
    pub threads: Option<usize>,
    /// Address that rank 0 listens on.
    pub bind: IpAddr,
    /// Whether processes of a node may take the same device.
    pub share_devices: bool,
}

/// `[distributed]`
#[derive(Clone, Debug)]
pub struct DistributedPlan {
    /// What averages gradients in place of a plain all-reduce.
    pub comm_hook: Option<HookSource>,
    /// How two ranks exchange bytes.
    pub transport: Transport,
    /// How an all-reduce is carried out.
    pub algorithm: AlgorithmChoice,
    /// The network interface that peers connect to; by default the one that reaches rank 0.
    pub interface: Option<String>,
    /// TCP connections for data between two ranks; by default 1 within a host and 4 between hosts.
    pub sockets: Option<usize>,
    /// MiB of gradients in a bucket, and in the first one, which should fill early.
    pub bucket_cap_mb: f64,
    pub first_bucket_mb: f64,
    /// How long a collective waits for its peers.
    pub timeout: Duration,
    /// How long processes look for each other.
    pub init_timeout: Duration,
}

impl DistributedPlan {
    /// The engine's part.
    pub fn gloo(&self) -> GlooOptions {
        GlooOptions {
            transport: self.transport,
            algorithm: self.algorithm,
            interface: self.interface.clone(),
            sockets: self.sockets,
            host: None,
        }
    }
}
