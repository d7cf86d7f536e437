//! The description of a cluster: a TOML file with nodes, links and measurements. It is read like a spec, so every problem is
//! reported at its place, and a file may extend another.

use super::fit::Fit;
use super::links::Links;
use super::measured::{Allreduce, MOST_SPREAD, Saves, Steps};
use base::display;
use base::error::Result;
use base::files;
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use spec::{Diagnostics, Fields, JobTree};
use std::path::{Path, PathBuf};

/// The top-level keys.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("required" = ["processes_per_node"]))]
struct ClusterKeys {
    /// Default: the name of the file.
    name: Option<String>,
    /// Nodes that can be had.
    #[default = 1]
    #[schemars(range(min = 1, max = 1_048_576))]
    nodes: usize,
    /// Processes that a node has room for: its devices, or as many as may share its cores.
    #[default = 1]
    #[schemars(range(min = 1, max = 4096))]
    processes_per_node: usize,
    /// Cores of a node, which the processes of a CPU job share.
    #[schemars(range(min = 1, max = 65536))]
    cores_per_node: Option<usize>,
    /// Cores that the communication of one process keeps busy, in a CPU job.
    #[default = 1.0]
    #[schemars(range(min = 0.0, max = 64.0))]
    communication_cores: f64,
    /// Time of a process's computation while all cores compute, over that of one process alone: caches and memory are shared.
    #[schemars(range(min = 1.0, max = 100.0))]
    slowdown: Option<f64>,
    /// How much longer than the median a tenth of a process's steps takes at least, as a part of the median. Each step waits for the
    /// slowest process.
    #[schemars(range(min = 0.0, max = MOST_SPREAD))]
    spread: Option<f64>,
    /// Of one node.
    #[schemars(range(min = 0.0, max = 1e9))]
    price_per_hour: Option<f64>,
    #[default = "USD"]
    currency: String,
}

/// `[within]` and `[between]`: links of processes within a node, and of nodes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
struct LinkKeys {
    /// Seconds of a message of no bytes.
    #[schemars(range(min = 0.0, max = 60.0))]
    alpha: Option<f64>,
    /// Bytes per second.
    #[schemars(range(min = 1.0))]
    beta: Option<f64>,
    /// Files of `ddp-run bench allreduce --out DIR`.
    measured: Vec<PathBuf>,
}

/// `[step]`: the measured step of the job, one of the two.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
struct StepKeys {
    /// A file of `ddp-run bench train SPEC --out DIR`.
    train: Option<PathBuf>,
    /// The folder of a run.
    run: Option<PathBuf>,
}

/// `[storage]`: where checkpoints are written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
struct StorageKeys {
    /// The folder of a run that saved checkpoints there. Default: that of `[step]`.
    run: Option<PathBuf>,
    /// Bytes of checkpoints per second. Default: measured by the run.
    #[schemars(range(min = 1.0))]
    write: Option<f64>,
    /// Bytes per second that a step waits for the copy. Default: measured by the run or the all-reduce's benchmark.
    #[schemars(range(min = 1.0))]
    copy: Option<f64>,
}

/// A cluster with its measurements.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The key `name`; by default the file's name without its extension.
    pub name: String,
    /// Number of nodes available.
    pub nodes: usize,
    /// Processes that fit on one node.
    pub processes_per_node: usize,
    /// CPU cores of a node; `None` is allowed only if the step was not measured on the CPU.
    pub cores: Option<usize>,
    /// Cores that the communication of one process keeps busy in a CPU job.
    pub communication_cores: f64,
    /// Computation time with all cores busy, relative to one process alone (1 or more); `None`: as measured.
    pub slowdown: Option<f64>,
    /// Relative excess of a process's slowest tenth of steps over the median, at least; `None`: as measured.
    pub spread: Option<f64>,
    /// Price of one node per hour, in `currency`; `None`: no costs are predicted.
    pub price_per_hour: Option<f64>,
    /// Currency of `price_per_hour`, `USD` by default.
    pub currency: String,
    /// Links between processes of one node.
    pub within: Measured,
    /// Links between nodes.
    pub between: Measured,
    /// The measured steps of the job.
    pub steps: Steps,
    /// Bytes per second of checkpoints.
    pub write: Option<f64>,
    /// Bytes per second of a checkpoint's copy, which the training step waits for; `None` if unknown.
    pub copy: Option<f64>,
}

/// What is known of links.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    pub files: Vec<Allreduce>,
    pub given: Option<Fit>,
}

impl Measured {
    /// `cores`: see [`Links::new`].
    pub fn links(&self, cores: Option<f64>) -> Links {
        Links::new(&self.files, self.given, cores)
    }
}

/// As many processes as `--world` takes.
const MOST: usize = 1 << 20;
const BY_BENCH: &str = "`ddp-run bench allreduce --world N --out DIR` writes DIR/allreduce.json";
const BY_TRAIN: &str = "`ddp-run bench train SPEC --world 1 --out DIR` writes DIR/train.json";

impl Cluster {
    /// Reads the file at `path`. Files in it are relative to its folder.
    ///
    /// # Errors
    /// All problems of the file, each with its position.
    pub fn load(path: &Path) -> Result<Self, Diagnostics> {
        let tree = JobTree::load(path, &[])?;
        let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        Self::read(&tree, files::folder(path), &name)
    }

    fn read(tree: &JobTree, folder: &Path, name: &str) -> Result<Self, Diagnostics> {
        let (cluster, _) = tree.read(|root| read(root, folder, name))?;
        // `read` withholds it only after a problem, and then there is no answer here.
        Ok(cluster.unwrap_or_else(|| unreachable!("a cluster is withheld only after a problem")))
    }
}

fn read(root: &mut Fields<'_>, folder: &Path, name: &str) -> Option<Cluster> {
    let keys: ClusterKeys = root.config();
    let within = links(root, "within", folder, keys.processes_per_node > 1);
    let between = links(root, "between", folder, keys.nodes > 1);
    let steps = steps(&mut root.req_section("step"), folder);
    let (storage, measured) = storage(&mut root.section("storage"), folder);
    let copy = within.files.iter().filter_map(|file| file.copy).next();
    if keys.nodes.saturating_mul(keys.processes_per_node) > MOST {
        root.problem("nodes", format!("more than {MOST} processes, `nodes` times `processes_per_node`"));
    }
    let mut steps = steps?;
    if steps.of_run {
        // It may have been on several such nodes.
        steps.rows.iter_mut().for_each(|row| row.world = row.world.min(keys.processes_per_node));
    }
    let saves = measured.or(steps.saves);
    if steps.device == "cpu" && keys.cores_per_node.is_none() {
        let hint = "processes that compute on the CPU share them";
        root.problem_with_hint(
            "cores_per_node",
            "missing key `cores_per_node`: `[step]` was measured on the CPU",
            hint,
        );
    }
    Some(Cluster {
        name: display::name(keys.name.as_deref().unwrap_or(name)),
        nodes: keys.nodes,
        processes_per_node: keys.processes_per_node,
        cores: keys.cores_per_node,
        communication_cores: keys.communication_cores,
        slowdown: keys.slowdown,
        spread: keys.spread,
        price_per_hour: keys.price_per_hour,
        currency: display::name(&keys.currency),
        within,
        between,
        write: storage.write.or(saves.map(|saves| saves.write)),
        copy: storage.copy.or(saves.and_then(|saves| saves.copy)).or(copy),
        steps,
    })
}

fn storage(fields: &mut Fields<'_>, folder: &Path) -> (StorageKeys, Option<Saves>) {
    let keys: StorageKeys = fields.config();
    let measured = keys.run.as_ref().and_then(|run| {
        let hint = "the folder of a run that has saved, as `ddp-run train SPEC --out DIR` does";
        Saves::of_run(&folder.join(run)).map_err(|why| fields.problem_with_hint("run", why, hint)).ok()
    });
    (keys, measured)
}

fn links(root: &mut Fields<'_>, table: &'static str, folder: &Path, needed: bool) -> Measured {
    let given = root.has(table);
    let mut fields = if needed { root.req_section(table) } else { root.section(table) };
    let keys: LinkKeys = fields.config();
    let link = match (keys.alpha, keys.beta) {
        (Some(alpha), Some(beta)) => Some(Fit { alpha, per_byte: 1.0 / beta }),
        (None, None) => None,
        (alpha, _) => {
            let (set, other) = if alpha.is_some() { ("alpha", "beta") } else { ("beta", "alpha") };
            fields.problem_with_hint(
                set,
                format!("`{set}` needs `{other}` too"),
                "or `measured`, in place of both",
            );
            None
        }
    };
    if link.is_some() && !keys.measured.is_empty() {
        fields.problem(
            "measured",
            "`alpha` and `beta` are given, so nothing is to be measured: leave out either",
        );
    }
    let sound = fields.is_sound();
    if given && sound && link.is_none() && keys.measured.is_empty() {
        fields.problem_with_hint(
            "measured",
            format!("`[{table}]` needs `alpha` and `beta`, or `measured`"),
            BY_BENCH,
        );
    }
    let mut files = Vec::new();
    for path in &keys.measured {
        match Allreduce::read(&folder.join(path)) {
            // What processes of one machine do in its memory tells nothing of a network.
            Ok(file) if table == "between" && !file.is_by_tcp() => fields.problem_with_hint(
                "measured",
                format!("{} was measured in shared memory, which does not join nodes", path.display()),
                "`ddp-run bench allreduce --transport tcp` measures connections, or set `alpha` and `beta`",
            ),
            Ok(file) => files.push(file),
            Err(why) => fields.problem_with_hint("measured", why, BY_BENCH),
        }
    }
    Measured { files, given: link }
}

fn steps(fields: &mut Fields<'_>, folder: &Path) -> Option<Steps> {
    let keys: StepKeys = fields.config();
    let (key, read) = match (&keys.train, &keys.run) {
        (Some(train), None) => ("train", Steps::of_bench(&folder.join(train))),
        (None, Some(run)) => ("run", Steps::of_run(&folder.join(run))),
        (Some(_), Some(_)) => {
            fields.problem("run", "`train` is set too, and only one of them is the measured step");
            return None;
        }
        (None, None) => {
            if fields.is_sound() {
                fields.problem_with_hint("train", "`[step]` needs `train` or `run`", BY_TRAIN);
            }
            return None;
        }
    };
    read.map_err(|why| fields.problem_with_hint(key, why, BY_TRAIN)).ok()
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
