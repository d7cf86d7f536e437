//! Any program under this process as the supervisor of its node, with torchrun's variables.

use base::display;
use base::error::{Error, IoContext, Result};
use ddp::device::{self, DeviceSpec};
use launch::clusters::{LaunchFlags, Origin, Settings, key_of_environment};
use launch::logs::{self, LogOptions};
use launch::nodes::{Limits, NodeRange, Nodes};
use launch::{ExitCode, LocalLaunch, Nproc, Policy, StopFlag, TorchVariables, WorkerInput, cores};
use record::RunId;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

/// A program, and where it runs.
pub struct ProgramLaunch {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Role of this process; one rank ([`Origin::Worker`]) is an error.
    pub origin: Origin,
    /// Nodes and rendezvous, from flags or environment variables.
    pub settings: Settings,
    /// Launch options of the command line.
    pub flags: LaunchFlags,
}

/// From SIGTERM to SIGKILL for the other workers of a run that has failed, as in torchrun. Most programs end at once.
const GRACE: Duration = Duration::from_secs(30);

/// Runs the program once per rank; returns when all have ended: `Done` or `Stopped`.
///
/// # Errors
/// The command line is wrong (exit 2), or a worker failed (its report and the run's exit code).
pub fn launch_program(start: ProgramLaunch, stop: &StopFlag) -> Result<ExitCode> {
    let ProgramLaunch { command, origin, settings, flags } = start;
    let nnodes = settings.nnodes.unwrap_or(NodeRange::ONE);
    let node_rank = match &origin {
        Origin::Worker(_) => return Err(Error::internal("a rank starts no program")),
        Origin::Node(node) => Some(node.node_rank),
        Origin::Own => settings.node_rank,
    };
    if nnodes == NodeRange::ONE {
        origin.is_alone(settings.nnodes.is_some(), settings.rdzv_endpoint.as_ref())?;
    }
    let nproc = flags.nproc_per_node.unwrap_or(Nproc::Devices);
    let nproc = nproc.resolve(cores::usable_cores(), || device::count(DeviceSpec::default()))?;
    flags.console().check(nproc)?;
    let (program, args) = command.split_first().ok_or_else(|| Error::usage("no program is given"))?;
    check_program(program)?;
    let rdzv_id = flags.rdzv_id.clone().and_then(|id| id.0);
    let max_restarts = flags.max_restarts.unwrap_or(0);
    let log_dir = match &flags.log_dir {
        Some(dir) => dir.clone(),
        None => std::env::temp_dir().join(format!("ddp-run-launch-{}", RunId::draw()?)),
    };
    // The program may change its folder.
    let log_dir = std::path::absolute(&log_dir).doing("find", &log_dir)?;
    logs::init_terminal(LogOptions::default())?;
    let launch = LocalLaunch {
        program: program.into(),
        args: args.to_vec(),
        input: WorkerInput::Environment(TorchVariables { max_restarts, run_id: rdzv_id.clone() }),
        policy: Policy {
            grace: GRACE,
            last: Duration::MAX,
            saves: false,
            stops_unasked: false,
            ..Policy::default()
        },
        console: flags.console(),
        stop: stop.clone(),
        ..LocalLaunch::new(nproc, &(), log_dir.clone())?
    };
    let limits = Limits::new(nnodes);
    let conf = flags.rdzv_conf;
    let nodes = Nodes {
        limits: Limits {
            max_restarts,
            join: conf.and_then(|conf| conf.join).unwrap_or(limits.join),
            settle: conf.and_then(|conf| conf.last_call).unwrap_or(limits.settle),
            shutdown: GRACE,
            together: false,
            ..limits
        },
        node_rank,
        endpoint: settings.rdzv_endpoint,
        key: if nnodes.max > 1 { Some(key_of_environment()?) } else { None },
        // Not that of any spec: nodes of `train` are refused.
        plan_hash: "launch".to_owned(),
        rdzv_id,
        ..Nodes::default()
    };
    nodes.check()?;
    let temporary = flags.log_dir.is_none();
    if temporary {
        make_private(&log_dir)?;
    }
    info!("logs: {}", display::path(&log_dir));
    let done = nodes.run(launch);
    if temporary && done.is_err() {
        // Only if it is empty.
        let _ = std::fs::remove_dir(&log_dir);
    }
    let code = done?;
    if code == ExitCode::Stopped {
        status!("stopped on request");
    }
    Ok(code)
}

/// Checks that the program exists and can be executed: in PATH, unless it is a path.
fn check_program(program: &OsString) -> Result<()> {
    let path = Path::new(program);
    let executable = |path: &Path| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let name = display::path(path);
    let is_path = path.components().count() > 1;
    let found = match is_path {
        true => Some(path.to_owned()),
        false => {
            let search = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&search).map(|dir| dir.join(path)).find(|path| executable(path))
        }
    };
    let why = match found {
        Some(found) if executable(&found) => match missing_interpreter(&found) {
            None => return Ok(()),
            Some(line) => format!("its interpreter (first line `{}`) is missing", display::name(&line)),
        },
        Some(found) if found.is_dir() => "it is a folder".to_owned(),
        Some(found) if found.exists() => "it is not executable".to_owned(),
        Some(_) => "there is no such file".to_owned(),
        None => "it is in no folder of PATH".to_owned(),
    };
    let error = Error::usage(format!("cannot start `{name}`: {why}"));
    Err(match path.extension() {
        Some(extension) if extension == "py" => {
            error.hint(format!("`-- python {name}` starts it with Python"))
        }
        _ if !is_path && path.exists() => error.hint(format!("`-- ./{name}` is the file in this folder")),
        _ => error,
    })
}

/// The first line of a script whose interpreter does not exist, `#!…`.
fn missing_interpreter(script: &Path) -> Option<String> {
    // As much as Linux reads.
    let mut head = Vec::new();
    base::files::open(script).ok()?.take(256).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let interpreter = line.split([' ', '\t']).find(|word| !word.is_empty())?;
    (!Path::new(interpreter).exists()).then(|| format!("#!{line}"))
}

/// Makes a folder that only this user can read.
fn make_private(path: &Path) -> Result<()> {
    let made = DirBuilder::new().mode(0o700).create(path).doing("create the log folder", path);
    made.map_err(|e| e.hint("`--log-dir DIR` writes elsewhere"))
}
