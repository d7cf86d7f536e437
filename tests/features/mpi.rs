//! Training under `mpirun` with `backend = "mpi"`. `DDP_RUN_MPIRUN` chooses the launcher, which must be that of the MPI in
//! this build; skipped with a word where it is not there. (The engine itself is tested in `crates/collectives/src/mpi/tests`.)

use crate::common::*;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const SMOKE: &str = "configs/ci/smoke.toml";

fn is_open_mpi() -> bool {
    ddp_run::testing::mpi::status().is_ok_and(|version| version.contains("Open MPI"))
}

/// `mpirun -n 2 ddp-run SMOKE` into `out`, with a temporary folder of its own. None, with a word, where there is no launcher.
fn mpirun(out: &Path, sets: &[&str], fault: Option<&str>) -> Option<Output> {
    let suffixed = if is_open_mpi() { "mpirun.openmpi" } else { "mpirun.mpich" };
    let launchers = match std::env::var("DDP_RUN_MPIRUN") {
        Ok(launcher) => vec![launcher],
        Err(_) => vec![suffixed.to_owned(), "mpirun".to_owned()],
    };
    // Launchers keep the state of a session there, and one may remove what another still needs.
    let temporary = tempfile::tempdir().expect("a scratch folder");
    for launcher in &launchers {
        let mut command = Command::new(launcher);
        command.current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null()).args(["-n", "2"]);
        command.args([env!("CARGO_BIN_EXE_ddp-run"), "train", SMOKE, "--out"]).arg(out);
        command.args(["--progress", "none", "--set", "backend=mpi"]);
        command.args(sets.iter().flat_map(|set| ["--set", set]));
        // Open MPI: in containers the user is root, and there are more ranks than processors.
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        command.env("DDP_RUN_FAULT", fault.unwrap_or_default());
        command.env("TMPDIR", temporary.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        match command.spawn() {
            Ok(child) => return Some(finish_within(RUN_HUNG, child)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => panic!("{launcher}: {e}"),
        }
    }
    eprintln!("skipped: none of {launchers:?} is there");
    None
}

fn note(out: &Path, rank: usize) -> serde_json::Value {
    read_json(out.join(format!("logs/failure-rank-{rank}.json")))
}

#[test]
fn two_ranks_train_to_the_bits_of_the_gloo_engine() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (ours, gloo) = (folder.path().join("mpi"), folder.path().join("gloo"));
    let Some(output) = mpirun(&ours, &[], None) else { return };
    assert_code(&output, 0);
    assert_code(&train(Path::new(SMOKE), &gloo, &[]), 0);
    assert!(!results(&ours).is_empty());
    // Two summands commute, so at a world of two not even the engine's order of summation shows.
    assert_eq!(results(&ours), results(&gloo));
    let run = std::fs::read_to_string(ours.join("run.json")).expect("run.json");
    assert!(run.contains(r#""backend": "mpi""#), "{run}");
}

#[test]
fn a_killed_rank_ends_the_job_and_the_same_command_resumes() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a scratch folder");
    let out = folder.path().join("run");
    let Some(output) = mpirun(&out, &[], Some("kill:rank=1,phase=forward,step=12")) else { return };
    assert!(!output.status.success(), "{}", stderr(&output));
    let output = mpirun(&out, &[], None).expect("the launcher is there");
    assert_code(&output, 0);
    assert!(events(&out).iter().any(|e| e["event"] == "end" && e["reason"] == "done"), "{:?}", events(&out));
}

#[test]
fn a_stopped_rank_is_named_in_the_note_of_a_waiting_rank() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a scratch folder");
    let out = folder.path().join("run");
    let fault = Some("stop:rank=1,phase=forward,step=3");
    let Some(output) = mpirun(&out, &["distributed.timeout=12"], fault) else { return };
    // MPICH's mpirun kills the others by SIGKILL, and may end with that.
    match is_open_mpi() {
        true => assert_code(&output, 91),
        false => assert!(matches!(output.status.code(), Some(9 | 91)), "{}", stderr(&output)),
    }
    let note = note(&out, 0);
    assert_eq!((&note["peer"], &note["code"], &note["step"]), (&1.into(), &91.into(), &3.into()), "{note}");
    assert!(note["message"].as_str().is_some_and(|m| m.contains("rank 1 did not respond")), "{note}");
    assert!(stderr(&output).contains("rank 1 did not respond"), "{}", stderr(&output));
    assert!(out.join("logs/collectives-rank-0.json").exists());
}

#[test]
fn the_error_without_a_launcher_explains_the_start() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a scratch folder");
    let mut command = ddp_run();
    command.args(["train", SMOKE, "--set", "backend=mpi", "--out"]).arg(folder.path().join("run"));
    let output = output_of(&mut command);
    assert_code(&output, 2);
    assert!(stderr(&output).contains("mpirun -n 2 ddp-run"), "{}", stderr(&output));
}
