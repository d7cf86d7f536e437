//! The options of processes by their environment.

use super::*;
use crate::CommErrorKind;
use std::path::PathBuf;

fn read(vars: &[(&str, &str)]) -> Result<Options, CommError> {
    Options::from_lookup(&|name| vars.iter().find(|(set, _)| *set == name).map(|(_, v)| (*v).to_owned()))
}

const RANK: [(&str, &str); 2] = [("RANK", "1"), ("WORLD_SIZE", "4")];
const MASTER: [(&str, &str); 2] = [("MASTER_ADDR", "node0"), ("MASTER_PORT", "29500")];
const STEP: [(&str, &str); 8] = [
    ("SLURM_JOB_ID", "12"),
    ("SLURM_STEP_ID", "3"),
    ("SLURM_PROCID", "3"),
    ("SLURM_STEP_NUM_TASKS", "4"),
    ("SLURM_LOCALID", "1"),
    ("SLURM_NODEID", "1"),
    ("SLURM_STEP_TASKS_PER_NODE", "2(x2)"),
    ("SLURM_STEP_NODELIST", "n[08-09]"),
];

fn with(parts: &[&[(&'static str, &'static str)]]) -> Vec<(&'static str, &'static str)> {
    parts.concat()
}

#[test]
fn a_script_sets_rank_world_size_and_address() {
    let options = read(&with(&[&RANK, &MASTER, &[("HOME", "/home/me")]])).unwrap();
    assert_eq!((options.rank, options.world_size, options.generation), (1, 4, 0));
    assert_eq!((options.local_rank, options.local_world_size), (0, 1), "one rank on each machine");
    assert_eq!(options.endpoint, Some(RdzvEndpoint::Tcp { host: "node0".into(), port: 29500 }));
    assert_eq!(options.key, Some(KeySource::Home("/home/me/.config/ddp-run/secret".into())));
    let here = [("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500"), ("DDP_RUN_PORT", "4711")];
    let options = read(&with(&[&RANK, &here])).unwrap();
    assert_eq!((options.local_rank, options.local_world_size), (1, 4), "all ranks on one machine");
    assert_eq!(options.endpoint, Some(RdzvEndpoint::Tcp { host: "127.0.0.1".into(), port: 4711 }));
    let file = [("DDP_RUN_RDZV_ENDPOINT", "file:///shared/meet")];
    for vars in [with(&[&RANK, &file]), with(&[&RANK, &MASTER, &file])] {
        assert_eq!(read(&vars).unwrap().endpoint, Some(RdzvEndpoint::File("/shared/meet".into())));
    }
    let key = [("DDP_RUN_SECRET_FILE", "/k"), ("DDP_RUN_SECRET", "a key of the run"), ("HOME", "/home/me")];
    assert_eq!(
        read(&with(&[&RANK, &MASTER, &key])).unwrap().key,
        Some(KeySource::Env("a key of the run".to_owned().into()))
    );
    let options = read(&[("RANK", "0"), ("WORLD_SIZE", "1")]).unwrap();
    assert_eq!((options.world_size, options.endpoint, options.key), (1, None, None));
}

#[test]
fn torchrun_names_the_run_its_restarts_and_its_store() {
    let torchrun = [
        ("LOCAL_RANK", "1"),
        ("LOCAL_WORLD_SIZE", "2"),
        ("TORCHELASTIC_RUN_ID", "job"),
        ("TORCHELASTIC_RESTART_COUNT", "2"),
        ("TORCHELASTIC_USE_AGENT_STORE", "True"),
    ];
    let options = read(&with(&[&RANK, &MASTER, &torchrun])).unwrap();
    assert_eq!((options.local_rank, options.local_world_size), (1, 2));
    assert_eq!((&*options.run_id, options.generation, options.endpoint), ("job", 2, None));
    let (host, ports) = options.agreed.unwrap();
    assert_eq!((&*host, ports.first), ("node0", 29501));
    let store = ports.store.unwrap();
    assert_eq!((&*store.address, &*store.key), ("node0:29500", "ddp-run/port-of-rank-0/job/3"));
    let options = read(&with(&[&RANK, &MASTER, &torchrun[..4]])).unwrap();
    let (_, ports) = options.agreed.unwrap();
    assert_eq!((ports.first, ports.store), (29500, None), "the port was free when torchrun looked");
    let chosen = with(&[&RANK, &MASTER, &torchrun, &[("DDP_RUN_PORT", "4711")]]);
    let expected = Some(RdzvEndpoint::Tcp { host: "node0".into(), port: 4711 });
    assert_eq!(read(&chosen).unwrap().endpoint, expected);
}

#[test]
fn a_slurm_step_is_read_unless_a_launcher_within_it_says_more() {
    let options = read(&with(&[&STEP, &[("SLURM_RESTART_COUNT", "1")]])).unwrap();
    assert_eq!((options.rank, options.world_size), (3, 4));
    assert_eq!((options.local_rank, options.local_world_size), (1, 2));
    assert_eq!((&*options.run_id, options.generation), ("slurm-12.3", 1));
    let (host, ports) = options.agreed.unwrap();
    assert_eq!((&*host, ports.first), ("n08", slurm::port(12, 3)));
    let options = read(&with(&[&STEP, &MASTER])).unwrap();
    assert_eq!(options.endpoint, Some(RdzvEndpoint::Tcp { host: "node0".into(), port: 29500 }));
    let options = read(&with(&[&STEP, &RANK, &MASTER])).unwrap();
    assert_eq!((options.rank, &*options.run_id), (1, ""));
}

#[test]
fn missing_and_contradicting_variables_are_named() {
    for (vars, expected) in [
        (vec![], "RANK and WORLD_SIZE are not set"),
        (vec![RANK[0]], "RANK is set, but WORLD_SIZE is not"),
        (vec![RANK[1]], "WORLD_SIZE is set, but RANK is not"),
        (vec![("RANK", "x"), RANK[1]], "RANK is `x`, which is not a number in range"),
        (vec![("RANK", "-1"), RANK[1]], "RANK is `-1`, which is not a number in range"),
        (vec![("RANK", "4"), RANK[1]], "rank 4 of 4: ranks go from 0"),
        (vec![("RANK", "0"), ("WORLD_SIZE", "0")], "rank 0 of 0"),
        (with(&[&RANK]), "MASTER_ADDR is not set, so rank 1 cannot find rank 0"),
        (vec![("RANK", "0"), RANK[1]], "MASTER_ADDR is not set, so the other ranks cannot find rank 0"),
        (with(&[&RANK, &MASTER[..1]]), "MASTER_PORT is not set"),
        (with(&[&RANK, &MASTER[1..]]), "MASTER_ADDR is not set"),
        (with(&[&RANK, &MASTER[..1], &[("MASTER_PORT", "0")]]), "MASTER_PORT is 0"),
        (with(&[&RANK, &MASTER, &[("DDP_RUN_PORT", "0")]]), "DDP_RUN_PORT is 0"),
        (with(&[&RANK, &MASTER[..1], &[("MASTER_PORT", "65536")]]), "MASTER_PORT is `65536`"),
        (with(&[&RANK, &[("DDP_RUN_RDZV_ENDPOINT", "file://x")]]), "DDP_RUN_RDZV_ENDPOINT is `file://x`"),
        (
            with(&[&RANK, &[("DDP_RUN_RDZV_ENDPOINT", "node0:0")]]),
            "DDP_RUN_RDZV_ENDPOINT is `node0:0`; every rank",
        ),
        (with(&[&RANK, &MASTER, &[("LOCAL_RANK", "1")]]), "LOCAL_RANK is set, but LOCAL_WORLD_SIZE is not"),
        (
            with(&[&RANK, &MASTER, &[("LOCAL_RANK", "2"), ("LOCAL_WORLD_SIZE", "2")]]),
            "local rank 2 of 2 on this machine does not fit rank 1 of 4",
        ),
        (with(&[&RANK, &MASTER, &[("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "8")]]), "local rank 0 of 8"),
        (
            with(&[&RANK, &MASTER, &[("TORCHELASTIC_RESTART_COUNT", "-1")]]),
            "TORCHELASTIC_RESTART_COUNT is `-1`",
        ),
        (with(&[&STEP[..3]]), "SLURM_PROCID is set, but SLURM_STEP_NUM_TASKS is not"),
        (with(&[&[("SLURM_NODEID", "2")], &STEP]), "SLURM_NODEID is 2, which does not fit"),
        (with(&[&[("SLURM_STEP_NODELIST", "n[")], &STEP]), "the node list `n[` can't be read"),
        // The batch script, and not a step.
        (with(&[&[("SLURM_STEP_ID", "4294967291")], &STEP]), "RANK and WORLD_SIZE are not set"),
    ] {
        let error = read(&vars).expect_err(expected);
        assert_eq!(error.kind, CommErrorKind::Configuration, "{error}");
        assert!(error.message.starts_with(expected), "no `{expected}` in: {error}");
        assert!(error.hint.is_some() || expected.contains("file://"), "{error}");
    }
}

#[test]
fn the_home_folder_may_be_moved() {
    let vars = [("XDG_CONFIG_HOME", "/config"), ("HOME", "/home/me")];
    let key = KeySource::find(&|name| vars.iter().find(|(set, _)| *set == name).map(|(_, v)| (*v).into()));
    assert_eq!(key, Some(KeySource::Home(PathBuf::from("/config/ddp-run/secret"))));
    assert_eq!(KeySource::find(&|_| None), None);
}
