//! The launcher side: `mpirun` around this test binary.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A case that runs longer hangs.
const LIMIT: Duration = Duration::from_secs(300);

pub(super) struct Outcome {
    /// mpirun's exit code; None if it was killed, or reported only that a signal ended it.
    pub code: Option<i32>,
    /// What each rank has written to its file, if it got that far.
    pub said: Vec<Option<String>>,
    pub output: String,
}

/// Possible names of the launcher of this build's MPI.
fn launchers() -> Vec<String> {
    if let Ok(launcher) = std::env::var("DDP_RUN_MPIRUN") {
        return vec![launcher];
    }
    let suffix = if super::is_open_mpi() { "openmpi" } else { "mpich" };
    vec![format!("mpirun.{suffix}"), "mpirun".to_owned()]
}

/// Starts `world` ranks of `case` and waits for all. Without a launcher, prints that and returns None.
pub(super) fn run(case: &str, world: usize) -> Option<Outcome> {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let output = folder.path().join("output");
    for launcher in launchers() {
        match start(&launcher, case, world, folder.path(), &output) {
            Ok(child) => {
                let status = wait(child, case, &output);
                let said = (0..world).map(|rank| fs::read_to_string(said(folder.path(), rank)).ok());
                return Some(Outcome {
                    code: status.code(),
                    said: said.collect(),
                    output: fs::read_to_string(&output).unwrap_or_default(),
                });
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => panic!("{launcher}: {e}"),
        }
    }
    eprintln!("skipped: none of {:?} is there", launchers());
    None
}

/// The file to which a rank writes its result.
pub(super) fn said(folder: &Path, rank: usize) -> std::path::PathBuf {
    folder.join(format!("rank-{rank}"))
}

fn start(launcher: &str, case: &str, world: usize, folder: &Path, output: &Path) -> std::io::Result<Child> {
    let log = File::create(output)?;
    let mut command = Command::new(launcher);
    command.args(["-n", &world.to_string()]).arg(std::env::current_exe()?);
    command.args(["--ignored", "--exact", "mpi::tests::rank::rank", "--nocapture"]);
    command.env("DDP_RUN_MPI_CASE", case).env("DDP_RUN_MPI_FOLDER", folder);
    // Each mpirun has its own folder, so that it does not remove what another has left there.
    command.env("TMPDIR", folder);
    // Open MPI: in containers the user is root, and there are more ranks than processors.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0).spawn()
}

fn wait(mut child: Child, case: &str, output: &Path) -> ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("mpirun can be waited for") {
            return status;
        }
        if begun.elapsed() > LIMIT {
            let group = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            panic!("{case} hangs:\n{}", fs::read_to_string(output).unwrap_or_default());
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
