//! The launcher side: builds the libraries, starts the ranks, and waits for them.

use base::process_stat::ProcessStat;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A case that runs longer hangs.
const LIMIT: Duration = Duration::from_secs(300);
pub const CUDA: &str = include_str!("../../../../../tests/fake_cuda/cuda.c");
const NCCL: &str = include_str!("../../../../../tests/fake_cuda/nccl.c");
const HEADERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fake_cuda");

/// The parts of CUDA that a rank finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Libraries {
    All,
    /// A driver from before CUDA 12.5.
    OldDriver,
    /// An NCCL without the functions that are needed.
    OldNccl,
    NoNccl,
    NoDriver,
}

/// The folder of the built libraries, for the whole test run.
fn made() -> Option<&'static Path> {
    static MADE: OnceLock<Option<TempDir>> = OnceLock::new();
    MADE.get_or_init(|| make().inspect_err(|why| eprintln!("skipped: {why}")).ok())
        .as_ref()
        .map(TempDir::path)
}

fn make() -> Result<TempDir, String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    for (name, cuda, nccl) in [
        ("All", &[][..], Some(&[][..])),
        ("OldDriver", &["-DWITHOUT_CONTEXT_EVENTS"][..], Some(&[][..])),
        ("OldNccl", &[], Some(&["-DWITHOUT_INIT"][..])),
        ("NoNccl", &[], None),
    ] {
        let into = folder.path().join(name);
        fs::create_dir(&into).map_err(|e| e.to_string())?;
        compile(&into, "libcuda.so.1", CUDA, cuda)?;
        if let Some(nccl) = nccl {
            let link = [nccl, &["-L.", "-l:libcuda.so.1", "-lm"]].concat();
            compile(&into, "libnccl.so.2", NCCL, &link)?;
        }
    }
    fs::create_dir(folder.path().join("NoDriver")).map_err(|e| e.to_string())?;
    Ok(folder)
}

/// Makes the library `name` in the folder `into`; an error if there is no C compiler.
pub fn compile(into: &Path, name: &str, source: &str, options: &[&str]) -> Result<(), String> {
    fs::write(into.join("source.c"), source).map_err(|e| e.to_string())?;
    let mut command = Command::new("cc");
    command.args(["-O1", "-shared", "-fPIC", "-pthread", "source.c", "-o", name]).current_dir(into);
    command.args(["-I", HEADERS]);
    command.arg(format!("-Wl,-soname,{name}")).args(options);
    let done = command.output().map_err(|e| format!("no C compiler to make {name} with: cc: {e}"))?;
    assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

/// The name of the test that is one rank: `rank::rank` beside this module.
fn rank_test() -> String {
    let (_, here) = module_path!().split_once("::").expect("the crate, then the module");
    format!("{}::rank::rank", here.rsplit_once("::").map_or("", |(parent, _)| parent))
}

fn is_real() -> bool {
    std::env::var_os("DDP_RUN_REAL_NCCL").is_some()
}

/// A case and its ranks.
pub(super) struct Launch {
    case: &'static str,
    world: usize,
    libraries: Vec<Libraries>,
    variables: Vec<(usize, &'static str, &'static str)>,
    real: bool,
}

pub(super) struct Outcome {
    /// What each rank has written to its file, if it got that far.
    pub said: Vec<Option<String>>,
    /// The fakes' logs of calls, by rank.
    pub logs: Vec<String>,
    outputs: Vec<String>,
    pub is_fake: bool,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (rank, said) in self.said.iter().enumerate() {
            let (log, output) = (&self.logs[rank], &self.outputs[rank]);
            writeln!(f, "rank {rank} said {said:?}; its calls:\n{log}its output:\n{output}")?;
        }
        Ok(())
    }
}

impl Launch {
    pub(super) fn new(case: &'static str, world: usize) -> Self {
        Self { case, world, libraries: vec![Libraries::All; world], variables: Vec::new(), real: false }
    }

    /// The case does not need the fakes.
    pub(super) fn on_a_gpu_too(mut self) -> Self {
        self.real = true;
        self
    }

    pub(super) fn with(mut self, libraries: Libraries) -> Self {
        self.libraries.fill(libraries);
        self
    }

    pub(super) fn with_on(mut self, rank: usize, libraries: Libraries) -> Self {
        self.libraries[rank] = libraries;
        self
    }

    pub(super) fn set(mut self, rank: usize, name: &'static str, value: &'static str) -> Self {
        self.variables.push((rank, name, value));
        self
    }

    /// Starts all ranks and waits for them; stopped ranks are killed when the others have ended. If the case cannot
    /// run, prints that and returns None.
    pub(super) fn run(&self) -> Option<Outcome> {
        if is_real() && !self.real {
            eprintln!("skipped: {} needs the fakes", self.case);
            return None;
        }
        let libraries = if is_real() { None } else { Some(made()?) };
        let folder = tempfile::tempdir().expect("a scratch folder");
        let begun = Instant::now();
        let mut ranks: Vec<Child> =
            (0..self.world).map(|rank| self.start(rank, folder.path(), libraries)).collect();
        while !self.have_ended(&mut ranks) {
            if begun.elapsed() > LIMIT {
                end(&mut ranks);
                panic!("{} hangs:\n{}", self.case, self.outcome(folder.path()));
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
        end(&mut ranks);
        Some(self.outcome(folder.path()))
    }

    fn have_ended(&self, ranks: &mut [Child]) -> bool {
        let alive =
            ranks.iter_mut().filter_map(|r| r.try_wait().expect("a child").is_none().then_some(r.id()));
        alive.filter(|id| !is_stopped(*id)).count() == 0
    }

    fn start(&self, rank: usize, folder: &Path, libraries: Option<&Path>) -> Child {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--ignored", "--exact", &rank_test(), "--nocapture"]);
        command.env("DDP_RUN_NCCL_CASE", self.case).env("DDP_RUN_NCCL_FOLDER", folder);
        command.env("DDP_RUN_NCCL_RANK", rank.to_string()).env("DDP_RUN_NCCL_WORLD", self.world.to_string());
        match libraries {
            Some(made) => {
                command.env("LD_LIBRARY_PATH", made.join(format!("{:?}", self.libraries[rank])));
                command.env("FAKE_NCCL_DIR", folder).env("FAKE_CUDA_LOG", log(folder, rank));
                command.env("FAKE_CUDA_UUID", (rank + 1).to_string()).env_remove("CUDA_VISIBLE_DEVICES");
            }
            None => {
                command.env("NCCL_HOSTID", format!("rank-{rank}"));
            }
        }
        command
            .envs(self.variables.iter().filter(|(r, ..)| *r == rank).map(|(_, name, value)| (name, value)));
        let output = File::create(output(folder, rank)).expect("the folder is writable");
        command.stdin(Stdio::null()).stdout(output.try_clone().expect("a file")).stderr(output);
        command.spawn().expect("this program starts")
    }

    fn outcome(&self, folder: &Path) -> Outcome {
        let read = |path: fn(&Path, usize) -> PathBuf| {
            (0..self.world).map(move |rank| fs::read_to_string(path(folder, rank)).ok())
        };
        Outcome {
            said: read(said).collect(),
            logs: read(log).map(Option::unwrap_or_default).collect(),
            outputs: read(output).map(Option::unwrap_or_default).collect(),
            is_fake: !is_real(),
        }
    }
}

fn end(ranks: &mut [Child]) {
    for rank in ranks {
        let _ = rank.kill();
        let _ = rank.wait();
    }
}

fn is_stopped(process: u32) -> bool {
    ProcessStat::of_process(process).is_some_and(|stat| stat.state == 'T')
}

/// On the rank side: plays the rank that the environment describes, by `act` of its case, number and folder, and leaves the result
/// for the launcher. Does nothing in a process that is no rank.
pub(super) fn play_rank(act: impl FnOnce(&str, usize, &Path) -> String) {
    let Some(case) = variable::<String>("DDP_RUN_NCCL_CASE") else { return };
    let folder: PathBuf = variable("DDP_RUN_NCCL_FOLDER").expect("set with the case");
    let rank = variable("DDP_RUN_NCCL_RANK").expect("set with the case");
    fs::write(said(&folder, rank), act(&case, rank, &folder)).expect("the folder is writable");
}

pub(super) fn variable<T: FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// The file to which a rank writes its result.
fn said(folder: &Path, rank: usize) -> PathBuf {
    folder.join(format!("said-{rank}"))
}

fn log(folder: &Path, rank: usize) -> PathBuf {
    folder.join(format!("log-{rank}"))
}

fn output(folder: &Path, rank: usize) -> PathBuf {
    folder.join(format!("output-{rank}"))
}
