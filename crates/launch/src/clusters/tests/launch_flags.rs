//! torchrun's flags and their variables: precedence, and what they come to.

use super::*;
use crate::Nproc;
use clap::Parser;

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    flags: LaunchFlags,
}

type Variables<'a> = &'a [(&'a str, &'a str)];

fn typed(flags: &str) -> LaunchFlags {
    let words = std::iter::once("ddp-run").chain(flags.split_whitespace());
    Line::try_parse_from(words).expect("flags").flags
}

fn get<'a>(variables: Variables<'a>) -> impl Fn(&str) -> Option<String> + use<'a> {
    move |name| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned())
}

/// The settings of a supervisor.
fn settings(flags: &str, variables: Variables<'_>) -> Result<Settings> {
    let get = get(variables);
    completed(&get, &typed(flags).settings(&get, 1)?)
}

fn nodes(flags: &str, variables: Variables<'_>) -> (Option<NodeRange>, Option<String>) {
    let settings = settings(flags, variables).expect("consistent");
    (settings.nnodes, settings.rdzv_endpoint.map(|at| at.to_string()))
}

fn at(n: usize, endpoint: &str) -> (Option<NodeRange>, Option<String>) {
    (Some(NodeRange::exactly(n)), Some(endpoint.to_owned()))
}

#[test]
fn a_flag_wins_over_our_variable_and_that_over_torchruns() {
    let pet = [("PET_NNODES", "2"), ("PET_RDZV_ENDPOINT", "pet:1")];
    let all = [pet[0], pet[1], ("DDP_RUN_NNODES", "3"), ("DDP_RUN_RDZV_ENDPOINT", "own:1")];
    assert_eq!(nodes("", &pet), at(2, "pet:1"));
    assert_eq!(nodes("", &all), at(3, "own:1"));
    assert_eq!(nodes("--nnodes 4 --rdzv-endpoint flag:1", &all), at(4, "flag:1"));
    assert_eq!(flags::NNODES.source(false, &get(&pet)), "PET_NNODES");
    assert_eq!(flags::NNODES.source(false, &get(&all)), "DDP_RUN_NNODES");
    assert_eq!(flags::NNODES.source(true, &get(&all)), "--nnodes");
    assert!(
        settings("", &[("DDP_RUN_NNODES", "x")]).is_err_and(|e| e.message.contains("DDP_RUN_NNODES is `x`"))
    );
}

#[test]
fn a_master_is_an_endpoint_with_torchruns_defaults() {
    assert_eq!(nodes("--nnodes 2 --master-addr n0", &[]), at(2, "n0:29500"));
    assert_eq!(nodes("--nnodes 2 --master-port 7", &[]), at(2, "127.0.0.1:7"));
    assert_eq!(nodes("--nnodes 2 --master-addr [::1] --master-port 7", &[]), at(2, "[::1]:7"));
    assert_eq!(
        nodes("--nnodes 2 --master-addr n0", &[("DDP_RUN_RDZV_ENDPOINT", "own:1")]),
        at(2, "n0:29500")
    );
    for wrong in ["n0:1", "tcp://n0", "a b", ""] {
        let line = Line::try_parse_from(["ddp-run", &format!("--master-addr={wrong}")]);
        assert!(line.is_err(), "{wrong}");
    }
}

#[test]
fn a_run_on_one_machine_may_name_an_endpoint_of_its_own() {
    let alone = |flags: &str, variables: Variables<'_>| {
        let settings = settings(flags, variables).expect("consistent");
        let origin = origin(variables, &settings).expect("one node");
        assert_eq!(origin, Origin::Own, "{flags} {variables:?}");
        origin.is_alone(false, settings.rdzv_endpoint.as_ref()).expect(flags);
    };
    alone("--rdzv-backend c10d --rdzv-endpoint localhost:0 --nnodes 1", &[]);
    alone("--rdzv-endpoint n0:0", &[]);
    alone("--rdzv-endpoint localhost:29400", &[]);
    alone("--master-port 7", &[]);
    alone("", &[("PET_RDZV_ENDPOINT", "localhost:0")]);
    alone("", &[("PET_MASTER_ADDR", "127.0.0.1")]);
    let error = settings("--nnodes 2 --rdzv-endpoint n0:0", &[]).expect_err("no port");
    assert!(error.kind == ErrorKind::Usage && error.message.contains("n0:0 has no port"), "{error}");
    let several = settings("--rdzv-endpoint n0:1", &[]).expect("consistent");
    assert!(Origin::Own.is_alone(false, several.rdzv_endpoint.as_ref()).is_err());
}

/// What its `setPodEnv` sets: RANK counts pods, WORLD_SIZE their processes.
#[test]
fn a_pod_of_a_pytorchjob_is_a_node() {
    let pod = [
        ("RANK", "1"),
        ("WORLD_SIZE", "4"),
        ("MASTER_ADDR", "job-master-0"),
        ("MASTER_PORT", "23456"),
        ("PET_NNODES", "2"),
        ("PET_NODE_RANK", "1"),
        ("PET_NPROC_PER_NODE", "2"),
    ];
    let settings = typed("").settings(&get(&pod), 1).expect("consistent");
    let node = NodeEnv {
        launcher: Launcher::Kubernetes,
        node_rank: 1,
        nnodes: Some(NodeRange::exactly(2)),
        endpoint: "job-master-0:23456".parse().ok(),
    };
    assert_eq!(origin(&pod, &settings).expect("a node"), Origin::Node(node));
    // A rank that torchrun has started in such a pod.
    let rank = merged(&TORCHRUN, &pod[4..]);
    assert_eq!(origin(&rank, &settings).expect("a rank"), Origin::Worker(worker(&TORCHRUN)));
}

#[test]
fn a_switch_that_is_off_is_off() {
    for off in ["0", "False", "no", ""] {
        assert_eq!(nodes("", &[("PET_STANDALONE", off), ("PET_NNODES", "2")]).0, Some(NodeRange::exactly(2)));
    }
    assert_eq!(nodes("", &[("PET_STANDALONE", "True"), ("PET_NNODES", "2")]).0, Some(NodeRange::ONE));
    let unclear = settings("", &[("PET_STANDALONE", "perhaps")]).expect_err("neither");
    assert!(unclear.message.contains("PET_STANDALONE is `perhaps`"), "{unclear}");
}

#[test]
fn flags_of_torchruns_own_processes_are_taken() {
    let flags = typed("--role trainer --monitor-interval 5 --start-method spawn --local-addr n1 --nnodes 2");
    assert_eq!(
        flags.without_effect.typed(),
        ["--role", "--local-addr", "--monitor-interval", "--start-method"]
    );
    assert!(flags.nnodes.is_some());
}

#[test]
fn standalone_is_one_node() {
    let elsewhere =
        [("DDP_RUN_NNODES", "3"), ("PET_NNODES", "2"), ("PET_NODE_RANK", "1"), ("PET_MASTER_ADDR", "x")];
    let alone = (Some(NodeRange::ONE), None);
    for (flags, variables) in [
        ("--standalone", &elsewhere[..]),
        ("--standalone --nnodes 1 --node-rank 0 --rdzv-id a --master-port 7", &[]),
        ("", &[("PET_STANDALONE", "1"), ("PET_NNODES", "1")]),
    ] {
        let settings = settings(flags, variables).expect("consistent");
        assert_eq!(
            (settings.nnodes, settings.rdzv_endpoint.as_ref().map(ToString::to_string)),
            alone,
            "{flags}"
        );
        assert_eq!(origin(variables, &settings).expect("one node"), Origin::Own);
    }
    assert_eq!(
        nodes("", &[("PET_STANDALONE", "0"), ("PET_NNODES", "2")]),
        (Some(NodeRange::exactly(2)), None)
    );
    for (flags, word) in [
        ("--standalone --nnodes 1:2", "--nnodes 1:2"),
        ("--standalone --node-rank 1", "--node-rank 1"),
        ("--standalone --rdzv-endpoint n0:1", "--rdzv-endpoint n0:1"),
    ] {
        let error = settings(flags, &[]).expect_err(word);
        assert!(error.kind == ErrorKind::Usage && error.message.contains(word), "{error}");
    }
    let settings = settings("--standalone", &[]).expect("consistent");
    refused(&TORCHRUN, &settings, &["--standalone starts all processes", "rank 5 of 8"]);
    refused(&STEP, &settings, &["--standalone starts all processes"]);
    let single =
        merged(&STEP, &[("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_PROCID", "0"), ("SLURM_LOCALID", "0")]);
    assert_eq!(origin(&single, &settings).expect("srun starts it once"), Origin::Own);
}

#[test]
fn a_supervisor_reads_torchruns_variables_and_a_rank_of_a_launcher_does_not() {
    let variables = [
        ("PET_NPROC_PER_NODE", "4"),
        ("PET_MAX_RESTARTS", "5"),
        ("PET_RDZV_ID", "job"),
        ("PET_RDZV_CONF", "timeout=9"),
        ("PET_RDZV_BACKEND", "c10d"),
        ("PET_LOG_DIR", "/logs"),
        ("PET_TEE", "3"),
        ("PET_REDIRECTS", "0:1"),
        ("PET_LOCAL_RANKS_FILTER", "0"),
    ];
    let read = |flags: &str, origin: &Origin| typed(flags).completed(origin, &get(&variables));
    let flags = "--nproc-per-node 4 --max-restarts 5 --rdzv-id job --rdzv-conf timeout=9 --rdzv-backend c10d \
                 --log-dir /logs --tee 3 --redirects 0:1 --local-ranks-filter 0";
    assert_eq!(read("", &Origin::Own).expect("read"), typed(flags));
    let some = read("--nproc-per-node 2 -t 0:1 --rdzv-id none", &Origin::Own).expect("read");
    assert_eq!((some.nproc_per_node, some.max_restarts), (Some(Nproc::Count(2)), Some(5)));
    assert_eq!((some.tee, some.rdzv_id), ("0:1".parse().ok(), "none".parse().ok()));
    let rank = Origin::Worker(worker(&TORCHRUN));
    assert_eq!(read("", &rank).expect("not read"), LaunchFlags::default());
    assert!(read("-r 3", &rank).is_err_and(|e| e.message.contains("torchrun has started this rank")));
    let wrong = LaunchFlags::default().completed(&Origin::Own, &get(&[("PET_TEE", "9")]));
    assert!(wrong.is_err_and(|e| e.message.contains("PET_TEE is `9`: expected 0 (none)")));
}
