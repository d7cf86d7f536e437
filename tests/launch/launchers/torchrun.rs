//! `torchrun --no-python ddp-run SPEC`; `DDP_RUN_TORCHRUN` names a torchrun that is not on PATH.

use super::trial::*;
use crate::common::alone;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

fn torchrun(flags: &[&str]) -> Option<Command> {
    torchrun_with(&[&["--standalone"], flags].concat())
}

fn torchrun_with(flags: &[&str]) -> Option<Command> {
    let path = std::env::var_os("DDP_RUN_TORCHRUN").map(PathBuf::from);
    let mut command = Command::new(path.or_else(|| found("torchrun"))?);
    command.args(["--nproc-per-node", "2"]).args(flags).arg("--no-python");
    Some(command)
}

#[test]
fn torchruns_workers_train_as_ddp_runs_own() {
    let _alone = alone();
    let Some(torchrun) = torchrun(&[]) else { return };
    let trial = Trial::new();
    let told = trial.run(torchrun, &trial.ddp_run(&[]));
    assert!(told.contains("launched by torchrun: rank 0 of 2"), "{told}");
    trial.assert_same_bits();
}

/// With the agent's store at MASTER_PORT, whose next port another program has, and without a store.
#[test]
fn torchruns_workers_meet_although_the_next_port_is_taken() {
    let _alone = alone();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = (taken.local_addr().expect("bound").port() - 1).to_string();
    let static_at = ["--nnodes", "1", "--master-addr", "127.0.0.1", "--master-port", &port];
    for (flags, no_store) in [(&static_at[..], "0"), (&["--standalone"], "1")] {
        let Some(mut torchrun) = torchrun_with(flags) else { return };
        torchrun.env("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", no_store);
        let trial = Trial::new();
        trial.run(torchrun, &trial.ddp_run(&["--set", "distributed.init_timeout=60"]));
    }
}

#[test]
fn a_killed_worker_ends_the_others() {
    let _alone = alone();
    let Some(torchrun) = torchrun(&[]) else { return };
    Trial::new().kill_rank_1(torchrun, "RANK");
}

/// torchrun starts the workers anew; they go on from the checkpoint, in a generation of their own.
#[test]
fn after_torchruns_restart_the_run_ends_in_the_same_bits() {
    let _alone = alone();
    let Some(mut torchrun) = torchrun(&["--max-restarts", "2"]) else { return };
    let trial = Trial::new();
    torchrun.env("DDP_RUN_FAULT", "kill:rank=1,phase=forward,step=7");
    let first_only = "[ \"$TORCHELASTIC_RESTART_COUNT\" = 0 ] || unset DDP_RUN_FAULT; exec \"$@\"";
    let shell = ["sh", "-c", first_only, "sh"].map(str::to_owned);
    trial.run(torchrun, &[&shell[..], &trial.ddp_run(&[])].concat());
    for rank in [0, 1] {
        let log = trial.log(rank);
        let starts = [
            format!("rank {rank}/2 attempt 1 generation 1 "),
            format!("rank {rank}/2 attempt 2 generation 2 "),
        ];
        assert!(starts.iter().all(|start| log.contains(start)), "{log}");
    }
    assert_eq!(trial.launcher(), "torchrun: rank 0 of 2, attempt 2");
    trial.assert_same_bits();
}
