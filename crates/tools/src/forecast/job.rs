//! What a prediction needs to know of a job, for one number of processes.

use super::links::Engine;
use base::error::{Error, Result};
use checkpoint::Every;
use collectives::Backend;
use ddp::device::DeviceSpec;
use job::plan::Plan;
use launch::cores::threads_per_worker;

/// A job on some number of processes.
#[derive(Clone, Debug)]
pub struct ForecastJob {
    /// Samples of each process in a step.
    pub samples: usize,
    /// Micro-batches of a step.
    pub accumulate: usize,
    /// Bytes of each gradient bucket, in the order in which they become full.
    pub buckets: Vec<u64>,
    /// What the hook leaves of these bytes, 0 to 1.
    pub compressed: f64,
    /// Compute threads of each process, if the spec names them.
    pub threads: Option<usize>,
    pub backend: Backend,
    pub device: DeviceSpec,
    pub hook: String,
    pub gloo: Engine,
    /// Optimizer steps of the whole run, and of an epoch; unknown if they depend on data that has not been read.
    pub steps: Option<u64>,
    pub steps_per_epoch: Option<u64>,
    /// Samples of the validation split, if there is one that is measured.
    pub val: Option<usize>,
    /// Epochs between evaluations, from 1.
    pub eval_every: u64,
    pub save_every: Every,
    pub checkpoint_bytes: u64,
}

impl ForecastJob {
    /// # Errors
    /// The size of the model depends on the data (exit code 2).
    pub fn from_plan(plan: &Plan) -> Result<Self> {
        let (Some(buckets), Some(sizes)) = (plan.bucket_bytes(), &plan.sizes) else {
            let what = "the size of the model depends on data that has not been read";
            let hint = "`--data` reads it; or set the size in `[model]`, as in `--set model.num_classes=10`";
            return Err(Error::usage(what).hint(hint));
        };
        let measured = plan.train.eval_every > 0 && plan.never_evaluated().is_none();
        Ok(Self {
            samples: plan.batch_size * plan.train.accumulate,
            accumulate: plan.train.accumulate,
            buckets,
            compressed: if ["bf16", "f16"].contains(&plan.reducer.comm_hook.as_str()) { 0.5 } else { 1.0 },
            threads: plan.launch.threads,
            backend: plan.backend,
            device: plan.device,
            hook: plan.reducer.comm_hook.clone(),
            gloo: Engine::Gloo(plan.gloo.transport, plan.gloo.algorithm),
            steps: plan.total_steps(),
            steps_per_epoch: plan.batch.steps_per_epoch.map(|steps| steps as u64).filter(|steps| *steps > 0),
            val: plan.dataset.facts.val.filter(|_| measured),
            eval_every: plan.train.eval_every.max(1),
            save_every: plan.save_every,
            checkpoint_bytes: sizes.checkpoint_bytes,
        })
    }

    /// What carries out its all-reduces where the model is on `device`.
    pub fn engine(&self, device: &str) -> Engine {
        match self.backend {
            Backend::Gloo => self.gloo,
            Backend::Mpi => Engine::Mpi,
            Backend::Nccl => Engine::Nccl,
            Backend::Auto if device.starts_with("cuda") => Engine::Nccl,
            Backend::Auto => self.gloo,
        }
    }

    /// Compute threads of each of `processes` on a node with these cores.
    pub fn threads_of(&self, cores: Option<usize>, processes: usize) -> usize {
        self.threads.unwrap_or_else(|| cores.map_or(1, |cores| threads_per_worker(cores, processes)))
    }

    /// Checkpoints of a run that trains for `seconds`, with that of its end.
    pub fn saves(&self, steps: u64, seconds: f64) -> u64 {
        let epochs = |n: u64| self.steps_per_epoch.map_or(1, |each| steps.div_ceil(each.saturating_mul(n)));
        match self.save_every {
            Every::Never => 0,
            Every::Epochs(n) => epochs(n),
            Every::Steps(n) => steps.div_ceil(n),
            Every::Time(time) => (seconds / time.as_secs_f64()).ceil().max(1.0) as u64,
        }
    }

    /// Evaluations of a run.
    pub fn evaluations(&self, steps: u64) -> u64 {
        let each = self.steps_per_epoch.filter(|_| self.val.is_some());
        each.map_or(0, |each| steps.div_ceil(each) / self.eval_every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use job::plan::testing::resolved;

    const SPEC: &str = "name = \"a\"\nbatch_size = 10\nepochs = 4\n[model]\nname = \"mlp\"\nhidden = [64]\n[dataset]\nname = \"shapes\"\n\
                        train = 100\nval = 40\n[optimizer]\nname = \"sgd\"\nlr = 0.1\n";

    fn job(sets: &[&str], world: usize) -> ForecastJob {
        let plan = resolved(&::job::Registry::standard(), SPEC, sets, world).unwrap();
        ForecastJob::from_plan(&plan).unwrap()
    }

    #[test]
    fn a_job_has_its_buckets_and_its_length() {
        let one = job(&["train.accumulate=2", "distributed.comm_hook=bf16"], 1);
        assert_eq!((one.samples, one.accumulate, one.compressed), (20, 2, 0.5));
        assert_eq!((one.steps, one.steps_per_epoch, one.val), (Some(20), Some(5), Some(40)));
        assert!(one.buckets.iter().sum::<u64>() < one.checkpoint_bytes * 2 && !one.buckets.is_empty());
        let two = job(&[], 2);
        assert_eq!((two.steps, two.compressed), (Some(20), 1.0));
        let small = job(&["distributed.first_bucket_mb=0.001", "distributed.bucket_cap_mb=0.001"], 2);
        assert!(small.buckets.len() > two.buckets.len());
        assert_eq!(small.buckets.iter().sum::<u64>(), two.buckets.iter().sum::<u64>());
    }

    #[test]
    fn saves_and_evaluations_are_counted() {
        let of = |set: &str| job(&[set], 1);
        assert_eq!(of("save_every=\"never\"").saves(40, 100.0), 0);
        assert_eq!(of("save_every=2").saves(40, 100.0), 2);
        assert_eq!(of("save_every=\"15 steps\"").saves(40, 100.0), 3);
        assert_eq!(of("save_every=\"30 s\"").saves(40, 100.0), 4);
        assert_eq!(of("train.eval_every=2").evaluations(40), 2);
        let never = job(&["train.eval_every=0", "checkpoint.best=train.loss"], 1);
        assert_eq!(never.evaluations(40), 0);
    }

    #[test]
    fn the_engine_is_that_of_the_measured_device() {
        let auto = job(&[], 2);
        assert_eq!(auto.engine("cpu"), auto.gloo);
        assert_eq!(auto.engine("cuda:0"), Engine::Nccl);
        assert_eq!(job(&["backend=gloo"], 2).engine("cuda:0"), auto.gloo);
        assert_eq!((auto.threads_of(Some(4), 2), auto.threads_of(None, 2)), (2, 1));
        assert_eq!(job(&["launch.threads=3"], 2).threads_of(Some(4), 2), 3);
    }
}
