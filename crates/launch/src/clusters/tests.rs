mod launch_flags;
mod messages;
mod nodes;
mod several;

use std::collections::BTreeMap;

use super::*;
use crate::nodes::KeySource;
use crate::{Endpoint, RankPosition};
use base::error::ErrorKind;
use collectives::rendezvous::{Ports, StoreKey};

fn origin(vars: &[(&str, &str)], settings: &Settings) -> Result<Origin> {
    let vars: BTreeMap<&str, &str> = vars.iter().copied().collect();
    detect(&|name| vars.get(name).map(|v| v.to_string()), settings)
}

/// The rank of this process according to the variables; `None` if it is its own supervisor.
fn detected(vars: &[(&str, &str)]) -> Result<Option<WorkerEnv>> {
    match origin(vars, &Settings::default())? {
        Origin::Own => Ok(None),
        Origin::Worker(worker) => Ok(Some(worker)),
        Origin::Node(node) => panic!("{node:?}"),
    }
}

fn worker(vars: &[(&str, &str)]) -> WorkerEnv {
    detected(vars).expect("consistent").expect("a worker")
}

fn endpoint(vars: &[(&str, &str)]) -> Endpoint {
    worker(vars).endpoint(None).expect("a rendezvous point")
}

fn connect(host: &str, port: u16) -> Endpoint {
    Endpoint::Connect { host: host.into(), port }
}

/// The ranks agree on a port, `first` if no other program has it.
fn agreed(host: &str, first: u16) -> Endpoint {
    Endpoint::Agreed { host: host.into(), ports: Ports { store: None, first, run: String::new() } }
}

#[track_caller]
fn refused(vars: &[(&str, &str)], settings: &Settings, words: &[&str]) {
    let error = origin(vars, settings).expect_err(words[0]);
    assert_eq!(error.kind, ErrorKind::Usage, "{error}");
    for word in words {
        assert!(error.message.contains(word) && error.hint.is_some(), "{word}: {error}");
    }
}

const TORCHRUN: [(&str, &str); 10] = [
    ("RANK", "5"),
    ("LOCAL_RANK", "1"),
    ("WORLD_SIZE", "8"),
    ("LOCAL_WORLD_SIZE", "4"),
    ("GROUP_RANK", "1"),
    ("GROUP_WORLD_SIZE", "2"),
    ("MASTER_ADDR", "node0"),
    ("MASTER_PORT", "29500"),
    ("HOME", "/home/me"),
    ("TORCHELASTIC_RUN_ID", "none"),
];

fn with<'a>(changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    merged(&TORCHRUN, changes)
}

#[test]
fn without_variables_there_is_no_worker() {
    assert_eq!(detected(&[]).expect("fine"), None);
    // A cluster may set an address for other programs.
    assert_eq!(detected(&[("MASTER_ADDR", "x"), ("LOCAL_RANK", "0")]).expect("fine"), None);
    assert_eq!(detected(&[("RANK", ""), ("WORLD_SIZE", " ")]).expect("fine"), None);
}

#[test]
fn reads_torchruns_variables() {
    let worker = worker(&TORCHRUN);
    let place =
        RankPosition { rank: 5, local_rank: 1, world_size: 8, local_world_size: 4, node_rank: 1, nnodes: 2 };
    assert_eq!(worker.place, place);
    assert_eq!(worker.endpoint(None).expect("known"), agreed("node0", 29500));
    assert_eq!(worker.to_string(), "torchrun: rank 5 of 8");
    assert_eq!(worker.key, Some(KeySource::Home("/home/me/.config/ddp-run/secret".into())));
    assert_eq!((worker.run_id.as_str(), worker.attempt), ("none", 1));
}

#[test]
fn ranks_agree_on_a_port_through_torchruns_store() {
    let at = |address: &str, attempt: u32, first| {
        let key = format!("ddp-run/port-of-rank-0/none/{attempt}");
        let store = Some(StoreKey { address: address.into(), key });
        let host = address.rsplit_once(':').expect("a port").0.trim_matches(['[', ']']).to_owned();
        Endpoint::Agreed { host, ports: Ports { store, first, run: String::new() } }
    };
    let store = ("TORCHELASTIC_USE_AGENT_STORE", "True");
    let zero = [("RANK", "0"), ("LOCAL_RANK", "0"), ("GROUP_RANK", "0"), store];
    assert_eq!(endpoint(&with(&zero)), at("node0:29500", 1, 29501));
    let again = with(&[("TORCHELASTIC_RESTART_COUNT", "2"), ("MASTER_ADDR", "::1"), store]);
    assert_eq!(endpoint(&again), at("[::1]:29500", 3, 29501));
    assert_eq!(endpoint(&with(&[("MASTER_PORT", "65535"), store])), at("node0:65535", 1, 65534));
    assert_eq!(endpoint(&with(&[("TORCHELASTIC_USE_AGENT_STORE", "False")])), agreed("node0", 29500));
    assert_eq!(endpoint(&with(&[("DDP_RUN_PORT", "7000"), store])), connect("node0", 7000));
    let zero = with(&[("RANK", "0"), ("LOCAL_RANK", "0"), ("GROUP_RANK", "0"), ("DDP_RUN_PORT", "7")]);
    assert_eq!(endpoint(&zero), Endpoint::Listen { host: "node0".into(), port: 7 });
    assert_eq!(endpoint(&with(&[("DDP_RUN_PORT", "7000")])), connect("node0", 7000));
}

#[test]
fn a_bare_rank_and_world_size_are_one_machine_on_loopback_and_one_process_a_machine_elsewhere() {
    let pod =
        [("RANK", "3"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "job-0"), ("MASTER_PORT", "1"), ("HOME", "/h")];
    let place =
        RankPosition { rank: 3, local_rank: 0, world_size: 4, local_world_size: 1, node_rank: 3, nnodes: 4 };
    assert_eq!(worker(&pod).place, place);
    let bare = [
        ("RANK", "1"),
        ("WORLD_SIZE", "2"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "1"),
        ("HOME", "/h"),
    ];
    assert_eq!(worker(&bare).place, RankPosition::on_one_node(1, 2));
    assert_eq!(endpoint(&[("RANK", "0"), ("WORLD_SIZE", "1"), ("HOME", "/h")]), Endpoint::Solo);
}

#[test]
fn ranks_of_a_run_share_a_secret_over_its_attempts_and_runs_do_not() {
    let key = ("DDP_RUN_SECRET", "a key of enough characters");
    let secret = |changes: &[(&str, &str)]| {
        let mut vars = with(changes);
        vars.push(key);
        let worker = worker(&vars);
        worker.secret(&worker.endpoint(None).expect("known")).expect("secret")
    };
    assert_eq!(secret(&[]), secret(&[("RANK", "0"), ("LOCAL_RANK", "0")]));
    assert_ne!(secret(&[]), secret(&[("TORCHELASTIC_RUN_ID", "other")]));
    // A process of an earlier attempt must be recognised as such; it does not count as unauthenticated.
    assert_eq!(secret(&[]), secret(&[("TORCHELASTIC_RESTART_COUNT", "1")]));
    assert_eq!(worker(&with(&[("TORCHELASTIC_RESTART_COUNT", "1")])).attempt, 2);
}

/// As set by Slurm 22.05, for the second of three nodes.
const STEP: [(&str, &str); 12] = [
    ("SLURM_JOB_ID", "12"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_PROCID", "3"),
    ("SLURM_LOCALID", "1"),
    ("SLURM_NODEID", "1"),
    ("SLURM_NTASKS", "5"),
    ("SLURM_STEP_NUM_TASKS", "5"),
    ("SLURM_STEP_NUM_NODES", "3"),
    ("SLURM_STEP_TASKS_PER_NODE", "2(x2),1"),
    ("SLURM_STEP_NODELIST", "n[02-03],m7"),
    ("SLURMD_NODENAME", "n03"),
    ("HOME", "/home/me"),
];

fn merged<'a>(base: &[(&'a str, &'a str)], changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let kept = base.iter().filter(|(name, _)| !changes.iter().any(|(n, _)| n == name)).copied();
    kept.chain(changes.iter().copied()).collect()
}

#[test]
fn a_task_of_a_slurm_step_is_a_rank() {
    let task = worker(&STEP);
    let place =
        RankPosition { rank: 3, local_rank: 1, world_size: 5, local_world_size: 2, node_rank: 1, nnodes: 3 };
    assert_eq!(task.place, place);
    assert_eq!(task.endpoint(None).expect("known"), agreed("n02", 15372));
    assert_eq!(task.to_string(), "Slurm: job 12.0, task 3 of 5 on node n03");
    assert_eq!((task.attempt, task.cpus, task.run_id.as_str()), (1, None, "slurm-12.0"));
    let requeued = worker(&merged(&STEP, &[("SLURM_RESTART_COUNT", "2"), ("SLURM_CPUS_PER_TASK", "4")]));
    assert_eq!((requeued.attempt, requeued.cpus), (3, Some(4)));
    assert_eq!(requeued.to_string(), "Slurm: job 12.0, task 3 of 5 on node n03, attempt 3");
    let chosen = merged(&STEP, &[("MASTER_ADDR", "gw"), ("MASTER_PORT", "7")]);
    assert_eq!(endpoint(&chosen), connect("gw", 7));
    let one_node = merged(
        &STEP,
        &[
            ("SLURM_STEP_NUM_NODES", "1"),
            ("SLURM_STEP_TASKS_PER_NODE", "5"),
            ("SLURM_NODEID", "0"),
            ("SLURM_LOCALID", "3"),
        ],
    );
    assert_eq!(endpoint(&one_node), agreed("127.0.0.1", 15372));
}

#[test]
fn a_batch_script_a_shell_and_a_step_of_one_task_are_like_any_shell() {
    assert_eq!(detected(&merged(&STEP, &[("SLURM_STEP_ID", "")])).expect("batch"), None);
    assert_eq!(detected(&merged(&STEP, &[("SLURM_STEP_ID", "4294967290")])).expect("salloc"), None);
    let alone = [("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_PROCID", "0")];
    assert_eq!(detected(&merged(&STEP, &alone)).expect("srun --pty"), None);
}

#[test]
fn rejects_inconsistent_slurm_steps() {
    let cases = [
        ("SLURM_PROCID", "5", "SLURM_STEP_NUM_TASKS is 5"),
        ("SLURM_LOCALID", "2", "local rank 2 of 2"),
        ("SLURM_STEP_TASKS_PER_NODE", "2,1", "`2,1`"),
        ("SLURM_STEP_TASKS_PER_NODE", "2(x3)", "`2(x3)`"),
        ("SLURM_NODEID", "3", "SLURM_NODEID is 3"),
        ("SLURM_STEP_NODELIST", "n[2", "`n[2`"),
    ];
    for (name, value, words) in cases {
        refused(&merged(&STEP, &[(name, value)]), &Settings::default(), &[words]);
    }
}

#[test]
fn ports_of_slurm_steps_differ_and_are_below_the_client_range() {
    assert_ne!(slurm::port(12, 0), slurm::port(12, 1));
    assert_ne!(slurm::port(12, 0), slurm::port(13, 0));
    assert!(
        [0, 1, 515, 516, u32::MAX].iter().all(|job| (15000..31000).contains(&slurm::port(*job, u32::MAX)))
    );
}

const OPEN_MPI: [(&str, &str); 7] = [
    ("OMPI_COMM_WORLD_RANK", "1"),
    ("OMPI_COMM_WORLD_SIZE", "2"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
    ("PMIX_NAMESPACE", "1761345537"),
    ("PMIX_RANK", "1"),
    ("HOME", "/h"),
];
const HYDRA: [(&str, &str); 5] = [
    ("PMI_RANK", "1"),
    ("PMI_SIZE", "2"),
    ("MPI_LOCALRANKID", "1"),
    ("MPI_LOCALNRANKS", "2"),
    ("HOME", "/h"),
];

fn port_of(endpoint: Endpoint) -> (u16, String) {
    match endpoint {
        Endpoint::Agreed { host, ports } if host == "127.0.0.1" => (ports.first, ports.run),
        other => panic!("{other:?}"),
    }
}

#[test]
fn ranks_of_an_mpirun_on_one_host_use_loopback_and_a_port_per_run() {
    let place = RankPosition::on_one_node(1, 2);
    let open = worker(&OPEN_MPI);
    assert_eq!((open.place, open.to_string().as_str()), (place, "Open MPI: rank 1 of 2"));
    assert_ne!(
        port_of(endpoint(&OPEN_MPI)),
        port_of(endpoint(&merged(&OPEN_MPI, &[("PMIX_NAMESPACE", "1761345538")])))
    );
    let by = |starter| match origin(&HYDRA, &Settings { starter, ..Settings::default() }).expect("consistent")
    {
        Origin::Worker(worker) => (worker.place, port_of(worker.endpoint(None).expect("known"))),
        other => panic!("{other:?}"),
    };
    assert_eq!(by(100).0, place);
    assert_eq!(by(100), by(100));
    assert_ne!(by(100).1.0, by(101).1.0, "another mpirun");
    assert_eq!(by(100).1.1, "100", "should the ports be the same, the secret is not");
    let given = merged(&OPEN_MPI, &[("MASTER_PORT", "7")]);
    assert_eq!(endpoint(&given), connect("127.0.0.1", 7));
}

#[test]
fn mpirun_over_several_hosts_requires_an_address() {
    for (base, hint) in [(&OPEN_MPI[..], "-x MASTER_ADDR"), (&HYDRA, "-genv MASTER_ADDR")] {
        let change: &[(&str, &str)] = &[("OMPI_COMM_WORLD_SIZE", "4"), ("PMI_SIZE", "4")];
        let change: Vec<_> =
            change.iter().filter(|(n, _)| base.iter().any(|(b, _)| b == n)).copied().collect();
        let spread = merged(base, &change);
        let error = worker(&spread).endpoint(None).expect_err("nobody knows where");
        assert!(error.message.contains("MASTER_ADDR is not set"), "{error}");
        assert!(
            error.hint.as_ref().is_some_and(|h| h.contains(hint) && h.contains("--rdzv-endpoint")),
            "{error}"
        );
        let given = merged(&spread, &[("MASTER_ADDR", "n1"), ("MASTER_PORT", "7")]);
        assert_eq!(endpoint(&given), connect("n1", 7));
        let half = worker(&merged(&spread, &[("MASTER_ADDR", "n1")])).endpoint(None).expect_err("no port");
        assert!(half.message.contains("MASTER_PORT is not set"), "{half}");
        let given: RdzvEndpoint = "tcp://n9:99".parse().expect("an endpoint");
        assert_eq!(worker(&spread).endpoint(Some(&given)).expect("given"), connect("n9", 99));
    }
}

#[test]
fn a_single_rank_needs_no_secret() {
    let homeless = worker(&with(&[("HOME", "")]));
    let error = homeless.secret(&homeless.endpoint(None).expect("known")).expect_err("no secret");
    assert!(error.kind == ErrorKind::Usage && error.message.contains("no home folder"), "{error}");
    let alone = worker(&[("RANK", "0"), ("WORLD_SIZE", "1")]);
    assert!(alone.secret(&alone.endpoint(None).expect("alone")).is_ok());
}
