//! Launchers on this machine: their programs on PATH, with versions.

use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// They print their versions within milliseconds, unless their file system hangs.
const PATIENCE: Duration = Duration::from_secs(2);
const NAMES: [&str; 7] =
    ["torchrun", "srun", "sbatch", "mpirun", "mpirun.openmpi", "mpirun.mpich", "kubectl"];

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Program {
    pub name: &'static str,
    /// `None` if it is not on PATH.
    pub path: Option<PathBuf>,
    pub version: Option<String>,
}

/// The programs that can start `ddp-run`.
pub(super) fn programs() -> Vec<Program> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let (answer, answers) = mpsc::channel();
    let mut all = Vec::new();
    for (index, name) in NAMES.into_iter().enumerate() {
        let path = std::env::split_paths(&search).map(|dir| dir.join(name)).find(|p| is_program(p));
        if let Some(path) = path.clone() {
            let answer = answer.clone();
            std::thread::spawn(move || answer.send((index, version(name, &path))));
        }
        all.push(Program { name, path, version: None });
    }
    drop(answer);
    let until = Instant::now() + PATIENCE;
    while let Ok((index, version)) = answers.recv_timeout(until.saturating_duration_since(Instant::now())) {
        all[index].version = version;
    }
    all
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

fn version(name: &str, path: &Path) -> Option<String> {
    match name {
        // It would load all of PyTorch to print its version.
        "torchrun" => torch_version(path),
        "kubectl" => None,
        _ => {
            let output = Command::new(path).arg("--version").stdin(Stdio::null()).output().ok()?;
            version_in(&String::from_utf8_lossy(&output.stdout))
        }
    }
}

/// PyTorch's version according to the Python installation that `torchrun` belongs to.
fn torch_version(torchrun: &Path) -> Option<String> {
    let lib = torchrun.parent()?.parent()?.join("lib");
    let pythons = std::fs::read_dir(lib).ok()?.flatten();
    let texts = pythons.filter_map(|p| {
        let package = p.path().join("site-packages/torch/version.py");
        std::fs::read_to_string(package).ok()
    });
    let mut versions = texts.filter_map(|text| {
        let line = text.lines().find(|l| l.starts_with("__version__"))?.to_owned();
        Some(format!("PyTorch {}", line.split(['\'', '"']).nth(1)?))
    });
    versions.next()
}

/// Finds the version in `mpirun (Open MPI) 4.1.4`, `slurm-wlm 22.05.8`, and Hydra's lines with `Version: 4.0.2`.
fn version_in(text: &str) -> Option<String> {
    let labelled = text.lines().find_map(|l| l.trim().strip_prefix("Version:"));
    let first = text.lines().next()?;
    let version = labelled.unwrap_or(first.rsplit(' ').next()?).trim();
    let product =
        ["Open MPI", "OpenRTE", "HYDRA", "slurm", "Intel(R) MPI"].iter().find(|p| first.contains(**p));
    let product = match product.copied() {
        Some("OpenRTE" | "Open MPI") => "Open MPI ",
        Some("HYDRA") => "MPICH ",
        Some("slurm") => "Slurm ",
        _ => return Some(first.trim().to_owned()),
    };
    Some(format!("{product}{version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_the_programs_print() {
        let cases = [
            ("mpirun (Open MPI) 4.1.4\n\nReport bugs to …\n", "Open MPI 4.1.4"),
            ("mpirun.openmpi (OpenRTE) 4.1.4\n", "Open MPI 4.1.4"),
            ("HYDRA build details:\n    Version:                                 4.0.2\n", "MPICH 4.0.2"),
            ("slurm-wlm 22.05.8\n", "Slurm 22.05.8"),
            ("something else\n", "something else"),
        ];
        for (text, version) in cases {
            assert_eq!(version_in(text).as_deref(), Some(version), "{text}");
        }
        assert_eq!(version_in(""), None);
    }

    #[test]
    fn pytorchs_version_is_read_without_starting_it() {
        let dir = tempfile::tempdir().unwrap();
        let package = dir.path().join("lib/python3.11/site-packages/torch");
        std::fs::create_dir_all(&package).unwrap();
        std::fs::write(package.join("version.py"), "__all__ = []\n__version__ = '2.9.0+cpu'\n").unwrap();
        assert_eq!(torch_version(&dir.path().join("bin/torchrun")).as_deref(), Some("PyTorch 2.9.0+cpu"));
        assert_eq!(torch_version(Path::new("/no/such/torchrun")), None);
    }
}
