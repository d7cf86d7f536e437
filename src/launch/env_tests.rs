use super::*;
use crate::error::ExitCode;

fn detect(vars: &[(&str, &str)]) -> Result<Option<WorkerEnv>> {
    let vars: BTreeMap<&str, &str> = vars.iter().copied().collect();
    WorkerEnv::detect(&|name| vars.get(name).map(|v| v.to_string()))
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
    let kept = TORCHRUN.iter().filter(|(name, _)| !changes.iter().any(|(n, _)| n == name)).copied();
    kept.chain(changes.iter().copied()).collect()
}

#[test]
fn no_variables_no_worker() {
    assert_eq!(detect(&[]).expect("fine"), None);
    // A cluster may set an address for other programs.
    assert_eq!(detect(&[("MASTER_ADDR", "x"), ("LOCAL_RANK", "0")]).expect("fine"), None);
    assert_eq!(detect(&[("RANK", ""), ("WORLD_SIZE", " ")]).expect("fine"), None);
}

#[test]
fn reads_torchruns_variables() {
    let worker = detect(&TORCHRUN).expect("fine").expect("a worker");
    let place = Place { rank: 5, local_rank: 1, world_size: 8, local_world_size: 4, node_rank: 1, nnodes: 2 };
    assert_eq!(worker.place, place);
    assert_eq!(worker.endpoint, Endpoint::Connect { host: "node0".into(), port: 29500 });
    assert_eq!(worker.key, KeySource::Home("/home/me/.config/ddp-run/secret".into()));
    assert_eq!((worker.run_id.as_str(), worker.attempt), ("none", 1));
}

#[test]
fn rank_0_listens_beside_torchruns_own_store() {
    let zero =
        [("RANK", "0"), ("LOCAL_RANK", "0"), ("GROUP_RANK", "0"), ("TORCHELASTIC_USE_AGENT_STORE", "True")];
    let worker = detect(&with(&zero)).expect("fine").expect("a worker");
    assert_eq!(worker.endpoint, Endpoint::Listen { host: "node0".into(), port: 29501 });
    let top = with(&[("MASTER_PORT", "65535"), ("TORCHELASTIC_USE_AGENT_STORE", "True")]);
    let worker = detect(&top).expect("fine").expect("a worker");
    assert_eq!(worker.endpoint, Endpoint::Connect { host: "node0".into(), port: 65534 });
    let own = with(&[("DDP_RUN_PORT", "7000")]);
    assert_eq!(
        detect(&own).expect("fine").expect("a worker").endpoint,
        Endpoint::Connect { host: "node0".into(), port: 7000 }
    );
}

#[test]
fn a_bare_rank_and_world_size_are_one_machine_on_loopback_and_one_process_a_machine_elsewhere() {
    let pod =
        [("RANK", "3"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "job-0"), ("MASTER_PORT", "1"), ("HOME", "/h")];
    let place = Place { rank: 3, local_rank: 0, world_size: 4, local_world_size: 1, node_rank: 3, nnodes: 4 };
    assert_eq!(detect(&pod).expect("fine").expect("a worker").place, place);
    let bare = [
        ("RANK", "1"),
        ("WORLD_SIZE", "2"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "1"),
        ("HOME", "/h"),
    ];
    let worker = detect(&bare).expect("fine").expect("a worker");
    let place = Place { rank: 1, local_rank: 1, world_size: 2, local_world_size: 2, node_rank: 0, nnodes: 1 };
    assert_eq!(worker.place, place);
    let alone =
        detect(&[("RANK", "0"), ("WORLD_SIZE", "1"), ("HOME", "/h")]).expect("fine").expect("a worker");
    assert_eq!(alone.endpoint, Endpoint::Solo);
}

#[test]
fn inconsistent_variables_are_refused_with_a_reason() {
    let cases: [(&[(&str, &str)], &str); 10] = [
        (&with(&[("LOCAL_WORLD_SIZE", "")]), "LOCAL_WORLD_SIZE is not"),
        (&[("WORLD_SIZE", "2")], "WORLD_SIZE is set, but RANK is not"),
        (&[("RANK", "0")], "RANK is set, but WORLD_SIZE is not"),
        (&with(&[("RANK", "8")]), "RANK is 8 and WORLD_SIZE is 8"),
        (&with(&[("RANK", "-1")]), "RANK is `-1`, which is not a number"),
        (&with(&[("MASTER_PORT", "70000")]), "MASTER_PORT is `70000`"),
        (&with(&[("MASTER_PORT", "0")]), "MASTER_PORT is 0"),
        (&with(&[("MASTER_ADDR", "")]), "MASTER_ADDR is not"),
        (&with(&[("LOCAL_RANK", "4")]), "LOCAL_RANK is 4"),
        (&with(&[("HOME", "")]), "no home folder"),
    ];
    for (vars, message) in cases {
        let error = detect(vars).expect_err(message);
        assert_eq!(error.code, ExitCode::Usage);
        assert!(error.message.contains(message) && error.hint.is_some(), "{error}");
    }
}

#[test]
fn ranks_of_a_run_share_a_secret_and_runs_do_not() {
    let key = ("DDP_RUN_SECRET", "a key of enough characters");
    let secret = |changes: &[(&str, &str)]| {
        let mut vars = with(changes);
        vars.push(key);
        detect(&vars).expect("fine").expect("a worker").secret().expect("secret")
    };
    assert_eq!(secret(&[]), secret(&[("RANK", "0"), ("LOCAL_RANK", "0")]));
    assert_ne!(secret(&[]), secret(&[("TORCHELASTIC_RUN_ID", "other")]));
    assert_ne!(secret(&[]), secret(&[("TORCHELASTIC_RESTART_COUNT", "1")]));
}

#[test]
fn nproc_is_read_and_resolved() {
    assert_eq!("4".parse(), Ok(Nproc::Count(4)));
    assert_eq!("auto".parse(), Ok(Nproc::Auto));
    for wrong in ["0", "-1", "4097", "many", ""] {
        assert!(wrong.parse::<Nproc>().is_err(), "{wrong}");
    }
    assert_eq!(Nproc::Auto.resolve(8, 2).expect("fine"), 2);
    assert_eq!(Nproc::Auto.resolve(8, 0).expect("fine"), 8);
    assert_eq!(Nproc::Cpu.resolve(8, 2).expect("fine"), 8);
    assert_eq!(Nproc::Count(3).resolve(8, 2).expect("fine"), 3);
    assert_eq!(Nproc::Gpu.resolve(8, 0).expect_err("none").code, ExitCode::Unavailable);
}

#[test]
fn threads_are_shared_out_and_the_users_choice_stays() {
    assert_eq!(threads_per_worker(8, 3), 2);
    assert_eq!(threads_per_worker(2, 4), 1);
    let set = thread_variables(3, &|name| (name == "OMP_NUM_THREADS").then(|| "7".into()));
    assert_eq!(set, BTreeMap::from([("RAYON_NUM_THREADS", "3".to_string())]));
    assert!(usable_cores() >= 1);
}
