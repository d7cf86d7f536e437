//! What the user has set and a start does not use.

use crate::plan::Plan;
use base::display::{self, count};
use base::error::is_unexpanded;
use launch::clusters::{LaunchFlags, Origin};
use launch::{Nproc, cores};
use std::path::Path;

/// Variables that set the number of threads of other programs.
const THREADS: [&str; 2] = ["OMP_NUM_THREADS", "RAYON_NUM_THREADS"];

/// A line for each value with `~` or a variable, which is not the path that it means in a shell.
pub(super) fn unexpanded(plan: &Plan, out: Option<&Path>) -> Vec<String> {
    let values = plan.values.iter().filter_map(|value| Some((value.key.as_str(), value.value.as_str()?)));
    let out = out.and_then(Path::to_str).map(|out| ("--out", out));
    let unexpanded = values.chain(out).filter(|(_, path)| is_unexpanded(path));
    let line = |(key, path): (&str, &str)| {
        let (key, path) = (display::name(key), display::name(path));
        format!("`{key}` is `{path}` as it stands: `~` and variables are not expanded")
    };
    unexpanded.map(line).collect()
}

/// A line for each setting without an effect, from one process of the run's.
pub(super) fn no_effect(
    plan: &Plan,
    origin: &Origin,
    flags: &LaunchFlags,
    get: &dyn Fn(&str) -> Option<String>,
) -> Vec<String> {
    let (threads, mut lines) = match origin {
        Origin::Worker(worker) if worker.place.rank > 0 => return Vec::new(),
        Origin::Worker(worker) => (worker.threads(), under_launcher(plan, worker, flags)),
        Origin::Own | Origin::Node(_) => {
            (cores::threads_per_worker(cores::usable_cores(), plan.world.nproc_per_node), Vec::new())
        }
    };
    let threads = plan.launch.threads.unwrap_or(threads);
    let set = THREADS.iter().filter_map(|name| Some((*name, get(name)?.trim().parse::<usize>().ok()?)));
    lines.extend(set.filter(|(_, set)| *set != threads).map(|(name, set)| {
        let each = count(threads, "thread");
        format!("{name}={set} has no effect: each rank computes on {each}, which `launch.threads` sets")
    }));
    lines
}

/// The launcher decides about processes and their restarts. (Flags for processes that contradict it are refused.)
fn under_launcher(plan: &Plan, worker: &launch::clusters::WorkerEnv, flags: &LaunchFlags) -> Vec<String> {
    let (name, place) = (worker.launcher.name(), worker.place);
    let mut lines = Vec::new();
    match plan.launch.nproc_per_node {
        Nproc::Count(n) if plan.is_set("launch.nproc_per_node") && n != place.local_world_size => {
            let there = count(place.local_world_size, "rank");
            lines.push(format!(
                "`launch.nproc_per_node = {n}` has no effect: {name} has started {there} on this node"
            ));
        }
        _ => {}
    }
    let nnodes = plan.nodes.nnodes;
    if plan.is_set("launch.nnodes") && !(nnodes.min..=nnodes.max).contains(&place.nnodes) {
        let there = count(place.nnodes, "node");
        lines.push(format!("`launch.nnodes = {nnodes}` has no effect: {name} has started ranks on {there}"));
    }
    if plan.nodes.max_restarts > 0 {
        let set = if flags.max_restarts.is_some() { "--max-restarts" } else { "`launch.max_restarts`" };
        lines
            .push(format!("{set} has no effect: {name} has started the ranks, and only it can restart them"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::WorldRequest;
    use crate::registry::Registry;
    use launch::clusters::{Settings, detect};
    use spec::JobTree;

    fn lines(launch: &str, variables: &[(&str, &str)]) -> Vec<String> {
        let text = format!(
            "name = \"x\"\nepochs = 1\nbatch_size = 4\n{launch}\n[model]\nname = \"linear\"\n\
             [dataset]\nname = \"random\"\nsamples = 8\n[optimizer]\nname = \"sgd\"\nlr = 0.1\n"
        );
        let get = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let tree = JobTree::parse("job.toml", &text, &[]);
        let origin = detect(&get, &Settings::default()).expect("consistent");
        let world = match &origin {
            Origin::Worker(worker) => WorldRequest::new(worker.place.world_size),
            _ => WorldRequest::default(),
        };
        let plan = Plan::resolve(&tree, &Registry::standard(), world).expect("a plan");
        no_effect(&plan, &origin, &LaunchFlags::default(), &get)
    }

    const TORCHRUN: [(&str, &str); 7] = [
        ("RANK", "0"),
        ("LOCAL_RANK", "0"),
        ("WORLD_SIZE", "2"),
        ("LOCAL_WORLD_SIZE", "2"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "29500"),
        ("TORCHELASTIC_RUN_ID", "none"),
    ];

    #[test]
    fn keys_that_contradict_a_launcher_are_named() {
        let launch = "launch = { nproc_per_node = 4, nnodes = 2, max_restarts = 3, threads = 1 }";
        assert_eq!(
            lines(launch, &TORCHRUN),
            [
                "`launch.nproc_per_node = 4` has no effect: torchrun has started 2 ranks on this node",
                "`launch.nnodes = 2` has no effect: torchrun has started ranks on 1 node",
                "`launch.max_restarts` has no effect: torchrun has started the ranks, and only it can restart them",
            ]
        );
        assert!(lines("launch = { nproc_per_node = 2, nnodes = 1, threads = 1 }", &TORCHRUN).is_empty());
        let second = [&[("RANK", "1"), ("LOCAL_RANK", "1")], &TORCHRUN[2..]].concat();
        assert!(lines(launch, &second).is_empty(), "one rank says it");
    }

    #[test]
    fn paths_that_only_a_shell_expands_are_named() {
        let text = "name = \"x\"\nepochs = 1\nbatch_size = 4\nmodel = { name = \"resnet18\", num_classes = 10 }\n\
                    optimizer = { name = \"sgd\", lr = 0.1 }\ndataset = { name = \"cifar10\", root = \"~/data\" }\n";
        let tree = JobTree::parse("job.toml", text, &[]);
        let plan = Plan::resolve(&tree, &Registry::standard(), WorldRequest::new(1)).expect("a plan");
        let as_it_stands = |key: &str, path: &str| {
            format!("`{key}` is `{path}` as it stands: `~` and variables are not expanded")
        };
        assert_eq!(unexpanded(&plan, None), [as_it_stands("dataset.root", "~/data")]);
        let out = unexpanded(&plan, Some(Path::new("$HOME/x")));
        assert_eq!(out.last(), Some(&as_it_stands("--out", "$HOME/x")));
    }

    #[test]
    fn variables_for_threads_that_differ_are_named() {
        let set = |variable| lines("launch = { threads = 3 }", &[variable]);
        assert_eq!(
            set(("OMP_NUM_THREADS", "8")),
            ["OMP_NUM_THREADS=8 has no effect: each rank computes on 3 threads, which `launch.threads` sets"]
        );
        assert!(set(("OMP_NUM_THREADS", "3")).is_empty());
    }
}
