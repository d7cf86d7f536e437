//! A step and a whole job on some number of processes.

use super::cluster::Cluster;
use super::job::ForecastJob;
use super::links::{Engine, Network};
use super::measured::Step;
use super::pipeline::{Bucket, Sharing, course};
use super::slowest;
use base::display;
use ddp::device::DeviceSpec;
use record::PredictedRow;

/// Bytes of the sums that ranks exchange once a step.
const SUMS: f64 = 64.0;

/// Seconds of a step on some number of processes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTime {
    pub step: f64,
    /// Communication that no backward pass hides, and waiting for the slowest rank.
    pub exposed: f64,
    pub communication: f64,
    /// Of one forward pass of a micro-batch.
    pub forward: f64,
    pub samples_per_s: f64,
}

/// A cluster, with what its measurements say of one job.
pub struct Forecast<'a> {
    cluster: &'a Cluster,
    network: Network,
    /// For values of host memory.
    of_host: Network,
    /// Cores of a node that processes share; `None` where they compute on devices.
    cores: Option<f64>,
    slowdown: f64,
}

impl<'a> Forecast<'a> {
    pub fn new(cluster: &'a Cluster, job: &ForecastJob) -> Self {
        let on_host = cluster.steps.device == "cpu";
        let cores = cluster.cores.filter(|_| on_host).map(|cores| cores as f64);
        let engine = job.engine(&cluster.steps.device);
        // Communication of devices needs no core of its own.
        let (within, between) = (cluster.within.links(cores), cluster.between.links(None));
        let network = Network { engine, within, between };
        let of_host = network.of_host(job.gloo);
        let mut forecast = Self { cluster, network, of_host, cores, slowdown: 1.0 };
        forecast.slowdown = cluster.slowdown.or_else(|| forecast.measured_slowdown()).unwrap_or(1.0);
        forecast
    }

    /// From steps of several processes, if they were measured beside those of fewer.
    fn measured_slowdown(&self) -> Option<f64> {
        let cores = self.cores?;
        if self.cluster.steps.cores.is_some_and(|measured| measured as f64 != cores) {
            return None;
        }
        let rows = &self.cluster.steps.rows;
        let pairs = rows.iter().flat_map(|one| rows.iter().map(move |more| (one, more)));
        let of = |(one, more): (&Step, &Step)| {
            let (few, many) = ((one.world * one.threads) as f64, (more.world * more.threads) as f64);
            let part = busy_part(many, one.threads as f64, cores) - busy_part(few, one.threads as f64, cores);
            let comparable = one.threads == more.threads && one.samples == more.samples && one.world == 1;
            let turns = (many / cores).max(1.0) / (few / cores).max(1.0);
            let slowdown = 1.0 + (more.compute() / one.compute() / turns - 1.0) / part;
            (comparable && part > 0.0).then_some((more.world, slowdown.max(1.0)))
        };
        // The most processes: they show most of it.
        pairs.filter_map(of).max_by_key(|(world, _)| *world).map(|(_, slowdown)| slowdown)
    }

    /// Time of a computation of each of `processes` on a node, over that of a process alone.
    fn load(&self, processes: usize, threads: usize) -> f64 {
        let Some(cores) = self.cores else { return 1.0 };
        let demand = (processes * threads) as f64;
        let crowded = 1.0 + (self.slowdown - 1.0) * busy_part(demand, threads as f64, cores);
        (demand / cores).max(1.0) * crowded
    }

    /// The measured step that is closest to `threads`: of the fewest processes, which disturb each other least.
    fn measured(&self, threads: usize) -> &'a Step {
        let rows = self.cluster.steps.rows.iter();
        rows.min_by(|a, b| far(a, threads).total_cmp(&far(b, threads)).then(a.world.cmp(&b.world)))
            .unwrap_or_else(|| unreachable!("measurements without a step are refused when they are read"))
    }

    /// What the file says, or what one process with this or the closest number of threads measured.
    fn spread(&self, threads: usize) -> Option<f64> {
        let known = self.cluster.steps.rows.iter().filter(|step| step.spread.is_some());
        let closest = known.min_by(|a, b| far(a, threads).total_cmp(&far(b, threads)));
        self.cluster.spread.or_else(|| closest?.spread)
    }

    /// A step of `job` on nodes with these numbers of processes, which are equal.
    pub fn step(&self, job: &ForecastJob, nodes: &[usize]) -> StepTime {
        let each = nodes.iter().copied().max().unwrap_or(1);
        let world: usize = nodes.iter().sum();
        let threads = job.threads_of(self.cluster.cores, each);
        let measured = self.measured(threads);
        let fewer = if self.cores.is_some() { measured.threads as f64 / threads as f64 } else { 1.0 };
        let slower = fewer * self.load(each, threads) / self.load(measured.world, measured.threads);
        let by_sample = slower * job.samples as f64 / measured.samples;
        let (forward, update) = (measured.forward * by_sample, measured.update * slower);
        let backward = measured.backward * by_sample;
        // Only the last micro-batch's backward pass has communication beside it.
        let last = backward / job.accumulate as f64;
        let before = measured.data * by_sample + forward + (backward - last);
        let buckets = self.buckets(job, nodes);
        let sums = self.of_host.all_reduce(nodes, SUMS);
        let course = course(last, &buckets, self.sharing(each, threads));
        // Of all that a rank does between two exchanges.
        let wait = (before + last + update) * slowest::wait(world, self.spread(threads).unwrap_or(0.0));
        let exposed = course.end - course.backward + sums + wait;
        let step = before + course.end + update + sums + wait;
        StepTime {
            step,
            exposed,
            communication: buckets.iter().map(|bucket| bucket.seconds).sum::<f64>() + sums,
            forward: forward / job.accumulate as f64,
            samples_per_s: (world * job.samples) as f64 / step,
        }
    }

    /// Gradients become ready in proportion to their bytes.
    fn buckets(&self, job: &ForecastJob, nodes: &[usize]) -> Vec<Bucket> {
        let total = job.buckets.iter().sum::<u64>().max(1) as f64;
        let mut full = 0_u64;
        let bucket = |bytes: &u64| {
            full += bytes;
            let seconds = self.network.all_reduce(nodes, *bytes as f64 * job.compressed);
            Bucket { ready: full as f64 / total, seconds }
        };
        job.buckets.iter().map(bucket).collect()
    }

    fn sharing(&self, processes: usize, threads: usize) -> Sharing {
        let of = |cores: f64| {
            Sharing::new(cores / processes as f64, threads as f64, self.cluster.communication_cores)
        };
        self.cores.map_or(Sharing::NONE, of)
    }

    /// `alone` are the samples per second of one process.
    pub fn row(&self, job: &ForecastJob, nodes: &[usize], alone: f64) -> PredictedRow {
        let each = nodes.iter().copied().max().unwrap_or(1);
        let world: usize = nodes.iter().sum();
        let time = self.step(job, nodes);
        let write = self.cluster.write.map(|rate| job.checkpoint_bytes as f64 / rate);
        let copy = self.cluster.copy.map(|rate| job.checkpoint_bytes as f64 / rate);
        let job_s = job.steps.map(|steps| self.whole(job, steps, world, &time, write, copy));
        let price = self.cluster.price_per_hour.map(|price| price * nodes.len() as f64 / 3600.0);
        PredictedRow {
            world,
            nodes: nodes.len(),
            threads: job.threads_of(self.cluster.cores, each),
            step_s: time.step,
            compute_s: time.step - time.exposed,
            exposed_s: time.exposed,
            communication_s: time.communication,
            samples_per_s: time.samples_per_s,
            efficiency: time.samples_per_s / (world as f64 * alone),
            checkpoint_s: write,
            held_up_s: copy,
            steps: job.steps,
            job_s,
            cost: job_s.zip(price).map(|(seconds, price)| seconds * price),
        }
    }

    /// Seconds of the whole job: steps, evaluations, and what saves hold up.
    fn whole(
        &self,
        job: &ForecastJob,
        steps: u64,
        world: usize,
        time: &StepTime,
        write: Option<f64>,
        copy: Option<f64>,
    ) -> f64 {
        let training = steps as f64 * time.step;
        let batches = job.val.map_or(0, |n| n.div_ceil(world * (job.samples / job.accumulate).max(1)));
        let evaluation = job.evaluations(steps) as f64 * batches as f64 * time.forward;
        let saves = job.saves(steps, training + evaluation);
        if saves == 0 {
            return training + evaluation;
        }
        let (write, copy) = (write.unwrap_or(0.0), copy.unwrap_or(0.0));
        // A save waits for the one before, and the end of the run for the last.
        let between = (training + evaluation) / saves as f64;
        let late = (write - between).max(0.0) * (saves - 1) as f64;
        training + evaluation + saves as f64 * copy + late + write
    }

    /// What holds for all numbers of processes.
    pub fn assumptions(&self, job: &ForecastJob) -> Vec<String> {
        let mut out = self.measurements(job);
        let links = [("within a node", &self.network.within), ("between nodes", &self.network.between)];
        for (place, links) in links {
            out.extend(links.facts().into_iter().map(|fact| format!("{place}: {fact}")));
        }
        if let Some(cores) = self.cores {
            let unknown = self.cluster.slowdown.or_else(|| self.measured_slowdown()).is_none();
            out.push(format!(
                "{cores} cores of a node are shared by its processes; computation on all of them takes {:.2} times as long as alone{}",
                self.slowdown,
                if unknown { ", for want of `slowdown` or steps of several processes" } else { "" }
            ));
        }
        if self.cluster.steps.undivided {
            out.push("a step was measured undivided: a third of it counts as forward pass, the rest as backward pass".into());
        }
        out.push(
            "all ranks are equally fast in the median, gradients become ready in proportion to their bytes"
                .into(),
        );
        let unknown = [
            (self.cluster.write.is_none(), "`write` in `[storage]`: a checkpoint's time"),
            (self.cluster.price_per_hour.is_none(), "`price_per_hour`: the cost"),
        ];
        out.extend(unknown.iter().filter(|(is, _)| *is).map(|(_, what)| format!("unknown without {what}")));
        out
    }

    /// Where measurements were made, as far as that is not the job's case.
    fn measurements(&self, job: &ForecastJob) -> Vec<String> {
        let (steps, engine) = (&self.cluster.steps, self.network.engine);
        let of = match steps.source.as_str() {
            "" => String::new(),
            source => format!(" of {}", display::name(source)),
        };
        let mut out = vec![format!("the step{of} was measured on {}", display::name(&steps.device))];
        let (wanted, measured) = (job.device.to_string(), &steps.device);
        let kind = |device: &str| device.split(':').next().unwrap_or_default().to_owned();
        if job.device != DeviceSpec::Auto && kind(&wanted) != kind(measured) {
            out.push(format!("the spec has device = \"{wanted}\": measure a step there"));
        }
        let links = [&self.network.within, &self.network.between];
        if !matches!(engine, Engine::Gloo(..)) && links.iter().any(|links| links.are_measured()) {
            out.push(format!(
                "the measured all-reduces are gloo's, and the job has {}'s over the same links",
                engine.name()
            ));
        }
        if job.hook != "none" {
            let bytes = if job.compressed < 1.0 { "half the" } else { "all" };
            out.push(format!("the hook {} sends {bytes} bytes, and takes no time itself", job.hook));
        }
        let within = &self.cluster.within.files;
        let measured = within.iter().map(|file| file.cores).chain([steps.cores]).flatten();
        if let (Some(has), Some(had)) =
            (self.cores, measured.map(|n| n as f64).find(|n| Some(*n) != self.cores))
        {
            out.push(format!("measured on a machine with {had} cores; a node has {has}"));
        }
        let files = within.iter().chain(&self.cluster.between.files);
        let warnings = steps.warnings.iter().chain(files.flat_map(|file| &file.warnings));
        for warning in warnings.map(|warning| format!("measured with a warning: {}", display::name(warning)))
        {
            if !out.contains(&warning) {
                out.push(warning);
            }
        }
        out
    }

    /// What holds for this number of processes.
    pub fn assumptions_of(&self, job: &ForecastJob, nodes: &[usize]) -> Vec<String> {
        let each = nodes.iter().copied().max().unwrap_or(1);
        let threads = job.threads_of(self.cluster.cores, each);
        let measured = self.measured(threads);
        let mut out = Vec::new();
        if self.cores.is_some() && measured.threads != threads {
            let was = measured.threads;
            out.push(format!(
                "steps of {threads} threads follow from those of {was}, as if threads scaled perfectly: measure them"
            ));
        }
        if measured.samples != job.samples as f64 {
            let (now, was) = (job.samples, measured.samples);
            out.push(format!("{now} samples of a process follow in proportion from {was} measured ones"));
        }
        let world: usize = nodes.iter().sum();
        match self.spread(threads) {
            _ if world < 2 => {}
            None => out.push(
                "no rank waits for a slower one, for want of `spread` or a `train.json` of one process".to_owned(),
            ),
            Some(spread) => out.push(format!(
                "a tenth of a rank's steps takes over {:.1} % longer than the median: with {world} ranks, a step waits {:.1} % of its computation for the slowest",
                spread * 100.0,
                slowest::wait(world, spread) * 100.0
            )),
        }
        if job.steps.is_none() {
            out.push("unknown without the data: the steps of the job, and so its time and cost".into());
        }
        out
    }
}

/// How much of the cores that one process leaves are busy, 0 to 1, where `demand` threads compute.
fn busy_part(demand: f64, threads: f64, cores: f64) -> f64 {
    match cores > threads {
        true => ((demand.min(cores) - threads) / (cores - threads)).clamp(0.0, 1.0),
        false => 0.0,
    }
}

/// How far the threads of a measured step are from these.
fn far(step: &Step, threads: usize) -> f64 {
    (step.threads as f64 / threads as f64).ln().abs()
}
