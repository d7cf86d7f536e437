//! Supervisors of nodes, through flags and under Kubernetes.

use super::*;
use crate::Nproc;

pub(super) fn settings(nnodes: Option<&str>, node_rank: Option<usize>, endpoint: Option<&str>) -> Settings {
    Settings {
        nnodes: nnodes.map(|n| n.parse().expect("nodes")),
        node_rank,
        rdzv_endpoint: endpoint.map(|e| e.parse().expect("an endpoint")),
        starter: 1,
        ..Settings::default()
    }
}

fn node(vars: &[(&str, &str)], settings: &Settings) -> NodeEnv {
    match origin(vars, settings).expect("consistent") {
        Origin::Node(node) => node,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_flags_of_a_node_make_a_supervisor_wherever_it_is_started() {
    let flags = settings(Some("3"), Some(2), Some("n1:1234"));
    let found = node(&[], &flags);
    assert_eq!((found.launcher, found.node_rank, found.nnodes), (Launcher::CommandLine, 2, flags.nnodes));
    assert_eq!(found.endpoint, flags.rdzv_endpoint);
    let per_node = merged(&STEP, &[("SLURM_STEP_NUM_TASKS", "3"), ("SLURM_PROCID", "1")]);
    let by_slurm = node(&per_node, &settings(Some("3"), None, Some("n1:1234")));
    assert_eq!(by_slurm.node_rank, 1, "SLURM_NODEID");
    assert_eq!(node(&[("JOB_COMPLETION_INDEX", "2")], &settings(Some("3"), None, Some("n1"))).node_rank, 2);
    assert_eq!(origin(&[], &settings(Some("1"), None, Some("n1:1"))).expect("one node"), Origin::Own);
}

#[test]
fn under_a_launcher_of_ranks_the_endpoint_applies_and_a_node_rank_is_rejected() {
    let flags = settings(None, None, Some("file:///shared/meet"));
    match origin(&TORCHRUN, &flags).expect("consistent") {
        Origin::Worker(worker) => {
            let endpoint = worker.endpoint(flags.rdzv_endpoint.as_ref()).expect("given");
            assert_eq!(endpoint, Endpoint::File { path: "/shared/meet".into() });
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(origin(&TORCHRUN, &settings(Some("2"), None, Some("n1:1"))), Ok(Origin::Worker(_))));
    assert!(matches!(origin(&STEP, &settings(None, None, Some("n1:1"))), Ok(Origin::Worker(_))));
    assert!(matches!(origin(&TORCHRUN, &settings(Some("1:4"), None, None)), Ok(Origin::Worker(_))));
}

#[test]
fn a_pod_of_an_indexed_job_supervises_its_node() {
    let pod = [("JOB_COMPLETION_INDEX", "1"), ("HOSTNAME", "train-1")];
    let found = node(&pod, &settings(Some("4"), None, None));
    assert_eq!((found.launcher, found.node_rank), (Launcher::Kubernetes, 1));
    assert_eq!(node(&pod, &Settings::default()).nnodes, None, "the spec may say it");
    assert_eq!(origin(&pod, &settings(Some("1"), None, None)).expect("a run a pod"), Origin::Own);
    refused(
        &[("JOB_COMPLETION_INDEX", "4")],
        &settings(Some("4"), None, None),
        &["JOB_COMPLETION_INDEX is 4"],
    );
    // The number of nodes is unknown: no index may train alone, not even the first.
    for index in ["0", "1"] {
        let found =
            origin(&[("JOB_COMPLETION_INDEX", index)], &Settings::default()).expect("the spec may say it");
        assert_eq!(found.is_alone(false, None).expect_err("of several").kind, ErrorKind::Usage);
        assert!(found.is_alone(true, None).is_ok());
    }
    // The PyTorchJob operator sets the ranks of its pods' processes itself.
    let operator = merged(&TORCHRUN, &pod);
    assert!(matches!(origin(&operator, &Settings::default()), Ok(Origin::Worker(_))));
}

#[test]
fn a_pod_of_kubeflows_supervises_its_node_as_torchrun_would() {
    let pod = [
        ("PET_NNODES", "2"),
        ("PET_NODE_RANK", "1"),
        ("PET_MASTER_ADDR", "train-0.train"),
        ("PET_MASTER_PORT", "29501"),
        ("PET_NPROC_PER_NODE", "4"),
        ("JOB_COMPLETION_INDEX", "1"),
    ];
    let get = |name: &str| pod.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    let found = origin(&pod, &Settings::default()).expect("consistent");
    let flags = LaunchFlags::default().completed(&found, &get).expect("a number");
    assert_eq!(flags.nproc_per_node, Some(Nproc::Count(4)));
    let found = node(&pod, &Settings::default());
    assert_eq!((found.launcher, found.node_rank), (Launcher::Kubernetes, 1));
    assert_eq!(
        (found.nnodes, found.endpoint),
        (Some(NodeRange::exactly(2)), "train-0.train:29501".parse().ok())
    );
    // Flags take precedence.
    let found = node(&pod, &settings(Some("3"), None, None));
    assert_eq!(found.nnodes, Some(NodeRange::exactly(3)));
    let found = node(&pod, &settings(None, Some(0), Some("n1:1")));
    assert_eq!(
        (found.launcher, found.node_rank, found.nnodes),
        (Launcher::CommandLine, 0, Some(NodeRange::exactly(2)))
    );
    // A pod that is a separate job.
    let single = merged(&pod, &[("PET_NNODES", "1"), ("PET_NODE_RANK", "0")]);
    assert_eq!(origin(&single, &Settings::default()).expect("one node"), Origin::Own);
    // Ranks that torchrun started in such a pod have the pod's variables, too.
    assert!(matches!(origin(&merged(&TORCHRUN, &pod), &Settings::default()), Ok(Origin::Worker(_))));
    refused(&[("PET_MASTER_ADDR", "train-0.train")], &Settings::default(), &["PET_NODE_RANK is not set"]);
    let beyond = merged(&pod, &[("PET_NNODES", "1"), ("PET_NODE_RANK", "1")]);
    refused(&beyond, &Settings::default(), &["PET_NODE_RANK is 1, but the run has 1 nodes"]);
    let beyond = Settings { node_rank: Some(1), nnodes: Some(NodeRange::ONE), ..Settings::default() };
    refused(&[], &beyond, &["--node-rank is 1 and --nnodes is 1"]);
    refused(&[("PET_NNODES", "many")], &Settings::default(), &["PET_NNODES is `many`"]);
    refused(&merged(&pod, &[("PET_MASTER_PORT", "0")]), &Settings::default(), &["PET_MASTER_PORT is 0"]);
    refused(&merged(&pod, &[("PET_NODE_RANK", "2")]), &Settings::default(), &["PET_NODE_RANK is 2"]);
}

#[test]
fn an_endpoint_requires_several_nodes() {
    let at = "n1:1".parse().ok();
    let alone = origin(&[], &settings(None, None, Some("n1:1"))).expect("the spec may say how many");
    assert_eq!(alone, Origin::Own);
    assert_eq!(alone.is_alone(false, at.as_ref()).expect_err("of several").kind, ErrorKind::Usage);
    assert!(alone.is_alone(true, at.as_ref()).is_ok() && alone.is_alone(false, None).is_ok());
}
