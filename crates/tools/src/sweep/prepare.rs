//! What a sweep consists of, from the spec and the command line: every child is resolved and checked before one starts.

use super::expand::{self, Point};
use super::flags::Flags;
use super::fork;
use super::lengths::lengths;
use super::schedule::Rules;
use super::share::{Machine, Share, cuda_names};
use super::state::{self, File, Record};
use base::error::{Error, Result};
use ddp::device::{self, DeviceSpec};
use job::plan::sweep::SweepConfig;
use job::plan::{Plan, Purpose, WorldRequest};
use job::registry::Registry;
use launch::cores::usable_cores;
use launch::nodes::NodeRange;
use record::comparable::Comparable;
use spec::{Given, JobTree, Override, Values, shown_name, values};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A sweep that can run.
pub struct Prepared {
    /// The sweep's folder: `--out`, or `runs/NAME-sweep`.
    pub folder: PathBuf,
    /// The spec that all children run, without `[sweep]`.
    pub spec_toml: String,
    spec: String,
    config: SweepConfig,
    pub(super) rules: Rules,
    /// The length of each rung but the last, as a `--set`.
    pub(super) lengths: Vec<String>,
    pub(super) children: Vec<ChildPlan>,
}

/// A child that can run.
pub struct ChildPlan {
    pub name: String,
    pub(super) point: Point,
    pub plan: Plan,
    pub(super) share: Share,
}

/// Reads the spec, and resolves every child of the sweep. `out` is the folder, if it is not the default.
///
/// # Errors
/// The spec or a child's is invalid (78); the settings make no sweep, or not on this machine (2).
pub fn prepare(
    spec: &Path,
    edits: &[Override],
    flags: &Flags,
    out: Option<PathBuf>,
    registry: &Registry,
) -> Result<Prepared> {
    let tree = JobTree::load(spec, edits)?;
    let (config, _) = tree.only("sweep").read(|root| root.section("sweep").config::<SweepConfig>())?;
    let config = flags.over(config)?;
    let ranked = config.metric.as_ref().map(|metric| {
        Override::Given(Given {
            from: if flags.metric.is_some() { "--metric" } else { "sweep.metric" }.to_owned(),
            typed: metric.clone(),
            key: "checkpoint.best",
            toml: toml::Value::from(metric.as_str()).to_string(),
        })
    });
    let base = tree.without("sweep").edited(&Vec::from_iter(ranked));
    let name = base.string("name").map(str::to_owned);
    let name = name.ok_or_else(|| Error::spec(format!("{}: missing `name`", shown_name(spec))))?;
    let points = expand::points(&config)?;
    let machine = OnDemand::default();
    // More would leave cores without a run.
    let parallel = config.parallel.min(points.len());
    let children = points
        .iter()
        .zip(expand::names(&points))
        .map(|(point, child)| resolve(&base, &name, child, point, parallel, registry, &machine))
        .collect::<Result<Vec<_>>>()?;
    let lengths = lengths(&config, &children)?;
    if !lengths.is_empty() || config.metric.is_some() {
        measured(&children)?;
    }
    let first = &children.first().ok_or_else(|| Error::usage("the sweep has no runs"))?.plan;
    // Also as part of a table, as in `--grid "checkpoint={best=…},{…}"`.
    if children.iter().any(|child| child.plan.checkpoint.best != first.checkpoint.best) {
        return Err(Error::usage(
            "the runs of a sweep are ranked by one metric, and `checkpoint.best` differs",
        )
        .hint("`--metric METRIC` ranks them"));
    }
    let rules = Rules {
        rungs: lengths.len() + 1,
        eta: config.eta as usize,
        prefers_larger: first.checkpoint.best.prefers_larger(),
        parallel,
        fail_fast: config.fail_fast,
    };
    let folder = out.unwrap_or_else(|| Path::new("runs").join(format!("{name}-sweep")));
    Ok(Prepared {
        folder,
        spec_toml: base.to_toml(),
        spec: shown_name(spec),
        config,
        rules,
        lengths,
        children,
    })
}

/// That the runs can be ranked.
fn measured(children: &[ChildPlan]) -> Result<()> {
    // What is resolved to 0 has no best checkpoint.
    let never = |plan: &&Plan| plan.checkpoint.keep_best == Some(0) && !plan.is_set("checkpoint.keep_best");
    let Some(plan) = children.iter().map(|child| &child.plan).find(never) else { return Ok(()) };
    Err(not_ranked(plan.checkpoint.best.name()))
}

pub(super) fn not_ranked(metric: &str) -> Error {
    Error::spec(format!("the runs can't be ranked: `{metric}` is never measured"))
        .hint("`--metric train.loss`, or a validation set, as of `--set dataset.val_split=0.1`")
}

/// The plan of one child, and its share of this machine.
fn resolve(
    base: &JobTree,
    name: &str,
    child: String,
    point: &Point,
    parallel: usize,
    registry: &Registry,
    machine: &OnDemand,
) -> Result<ChildPlan> {
    let mut sets: Vec<Override> =
        point.iter().map(|(key, value)| Override::Set(format!("{key}={value}"))).collect();
    sets.push(Override::Set(format!("name={name}.{child}")));
    let request = || WorldRequest { devices: device::count, ..WorldRequest::default().to(Purpose::Start) };
    let of_point = |error: Error| about(error, &child, point);
    let plan = Plan::resolve(&base.edited(&sets), registry, request()).map_err(|e| of_point(e.into()))?;
    if plan.nodes.nnodes != NodeRange::ONE {
        return Err(Error::usage("a sweep runs on this machine alone, and the spec is for several nodes")
            .hint("`--set launch.nnodes=1`"));
    }
    let nproc = plan.launch.nproc_per_node;
    let share = machine.machine(plan.device).share(parallel, nproc, plan.launch.share_devices)?;
    sets.push(Override::Set(format!("launch.nproc_per_node={}", share.processes)));
    let plan = Plan::resolve(&base.edited(&sets), registry, request()).map_err(|e| of_point(e.into()))?;
    Ok(ChildPlan { name: child, point: point.clone(), plan, share })
}

/// The error with the values of the run that it is about, which the place in the spec alone does not show.
fn about(error: Error, child: &str, point: &Point) -> Error {
    let sets: Vec<String> = point.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let of = format!("this is run {child} of the sweep, with {}", sets.join(" "));
    let hint = error.hint.as_ref().map_or_else(|| of.clone(), |hint| format!("{hint}; {of}"));
    error.hint(hint)
}

/// The number of devices of this machine, by kind; CUDA devices are counted once.
#[derive(Default)]
struct OnDemand(std::cell::OnceCell<Vec<String>>);

impl OnDemand {
    fn machine(&self, device: DeviceSpec) -> Machine {
        let cuda = || {
            let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
            cuda_names(device::count(DeviceSpec::Cuda(None)), visible.as_deref())
        };
        let (cuda, others) = match device {
            DeviceSpec::Auto | DeviceSpec::Cuda(None) => (self.0.get_or_init(cuda).clone(), 0),
            DeviceSpec::Cpu => (Vec::new(), 0),
            DeviceSpec::Cuda(Some(_)) | DeviceSpec::Wgpu(_) => (Vec::new(), device::count(device)),
        };
        Machine { cores: usable_cores(), cuda, others }
    }
}

impl Prepared {
    /// The file of this sweep before anything has run.
    pub fn file(&self) -> File {
        let record = |child: &ChildPlan| Record::new(child.name.clone(), &child.point, &child.plan);
        let first = &self.children[0].plan;
        let mut identity = state::results(first);
        identity.extend(self.settings());
        let length = |set: &String| set.clone();
        let rungs = match self.rules.rungs {
            1 => Vec::new(),
            _ => self.lengths.iter().map(length).chain(["the whole run".to_owned()]).collect(),
        };
        File {
            ddp_run: env!("CARGO_PKG_VERSION").to_owned(),
            spec: self.spec.clone(),
            hash: first.hash.clone(),
            metric: first.checkpoint.best.name().to_owned(),
            prefers_larger: self.rules.prefers_larger,
            rungs,
            identity,
            children: self.children.iter().map(record).collect(),
        }
    }

    /// The settings that choose and rank the children, as TOML.
    fn settings(&self) -> BTreeMap<String, String> {
        let SweepConfig { grid, sample, random, seed, min_epochs, min_steps, eta, .. } = &self.config;
        let mut all = BTreeMap::new();
        let mut add = |key: &str, value: Option<String>| {
            all.extend(value.map(|value| (format!("sweep.{key}"), value)));
        };
        for (key, values) in grid.iter().flat_map(|grid| &grid.0) {
            add(&format!("grid.{key}"), Some(values.join(", ")));
        }
        for (key, of) in sample.iter().flat_map(|space| &space.0) {
            add(&format!("sample.{key}"), Some(of.to_string()));
        }
        add("random", random.map(|n| n.to_string()));
        add("seed", random.map(|_| seed.to_string()));
        add("metric", Some(self.children[0].plan.checkpoint.best.name().to_owned()));
        add("min_epochs", min_epochs.map(|n| n.to_string()));
        add("min_steps", min_steps.map(|n| n.to_string()));
        add("eta", (self.rules.rungs > 1).then(|| eta.to_string()));
        all
    }

    /// For each child, the one whose copy it continues. With successive halving, none: the rungs determine the lengths.
    pub(super) fn behind(&self) -> Vec<Option<usize>> {
        if self.rules.rungs > 1 {
            return vec![None; self.children.len()];
        }
        let plans: Vec<&Plan> = self.children.iter().map(|child| &child.plan).collect();
        fork::behind(&plans)
    }

    /// Run folder of child number `at`.
    pub fn folder_of(&self, at: usize) -> PathBuf {
        self.folder.join(&self.children[at].name)
    }

    /// Log file of child number `at`, in the sweep's folder.
    pub fn log_of(&self, at: usize) -> PathBuf {
        self.folder.join(super::children::LOGS).join(format!("{}.log", self.children[at].name))
    }

    /// That the values of the metric do not compare, because a key that differs says of what they are.
    pub fn warnings(&self) -> Vec<String> {
        let specs: Vec<Option<Values>> =
            self.children.iter().map(|child| values(&child.plan.to_toml())).collect();
        let named: Vec<(&str, Option<&Values>)> = self
            .children
            .iter()
            .map(|child| child.name.as_str())
            .zip(specs.iter().map(Option::as_ref))
            .collect();
        let (comparable, metric) = (Comparable::new(&named), self.file().metric);
        if comparable.members(&metric).len() < 2 {
            return Vec::new();
        }
        let warning = |why: &String| format!("the runs are ranked by `{metric}`, and {why}");
        comparable.why().iter().map(warning).collect()
    }

    /// A line for each child: its name and its settings.
    pub fn listing(&self) -> String {
        let width = self.children.iter().map(|child| child.name.len()).max().unwrap_or(0);
        let (file, behind) = (self.file(), self.behind());
        let mut lines: String = self
            .children
            .iter()
            .zip(behind)
            .map(|(child, behind)| {
                let sets: Vec<String> =
                    child.point.iter().map(|(key, value)| format!("{key}={value}")).collect();
                let after =
                    behind.map_or(String::new(), |at| format!("  (continues {})", self.children[at].name));
                format!("{:width$}  {}{after}\n", child.name, sets.join(" "))
            })
            .collect();
        let runs = base::display::count(self.children.len(), "run");
        lines += &format!("{runs} in {}, ranked by {}\n", self.folder.display(), file.metric);
        for (rung, length) in file.rungs.iter().enumerate() {
            let on_it = super::schedule::kept(self.children.len(), self.rules.eta, rung);
            lines += &format!("rung {}: {}, {length}\n", rung + 1, base::display::count(on_it, "run"));
        }
        lines
    }
}

#[cfg(test)]
#[path = "prepare_tests.rs"]
mod tests;
