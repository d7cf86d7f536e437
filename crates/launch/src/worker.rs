//! One worker process as seen by its supervisor: the control pipe, signals, and its end.

use std::fs::File;
use std::io::{self, PipeWriter, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use super::handoff::TAKE_DOWN;
use super::os;
use super::verdict::WorkerStatus;
use base::process_stat::ProcessStat;

/// Variables for a node's supervisor, as `PET_*` are: a worker would use them in place of MASTER_ADDR and MASTER_PORT.
const OWN_VARIABLES: [&str; 5] =
    ["DDP_RUN_RDZV_ENDPOINT", "DDP_RUN_PORT", "DDP_RUN_SECRET_FILE", "DDP_RUN_NNODES", "DDP_RUN_NODE_RANK"];

/// A running worker. Dropping it kills it and its children.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Kept open until the worker has ended: end-of-file means to the worker that the supervisor is dead. `None` for a
    /// worker without a handoff, which only hears signals.
    control: Option<ChildStdin>,
    /// The rest of the handoff, and a word after it, that is not in the pipe yet. A pipe holds 64 KiB; the rest
    /// follows as the worker reads, so that a worker that does not read can't block the supervisor.
    unsent: Vec<u8>,
    /// A worker without a handoff was asked to stop, and so were its children, which may end after it: a shell dies at once
    /// of a signal at which the program that it runs saves.
    stopping: bool,
    /// It has ended, and its children have not.
    lingering: bool,
    reaped: bool,
}

/// Where a worker's standard output and error go.
#[derive(Debug)]
pub enum Output {
    /// To the supervisor's own.
    Inherit,
    /// Both to a file.
    Log(File),
    /// Standard output only.
    Pipe(PipeWriter),
    /// Each to a place of its own.
    Each {
        /// Standard output.
        stdout: Stdio,
        /// Standard error.
        stderr: Stdio,
    },
}

impl Process {
    /// Starts `command` with `handoff` as its first input, or without any input. It inherits `listener`, which is then closed here, and no
    /// other descriptor. The worker dies with the calling thread, which must therefore live as long as the run: the
    /// main thread.
    pub fn start(
        mut command: Command,
        handoff: Option<Vec<u8>>,
        output: Output,
        listener: Option<TcpListener>,
    ) -> io::Result<Self> {
        match &handoff {
            Some(_) => {
                command.stdin(Stdio::piped());
                // They are for externally launched workers; these workers do not need them.
                command.env_remove("DDP_RUN_SECRET").env_remove("DDP_RUN_SECRET_FILE");
                // The supervisor knows the culprit: a rank that lost its peer does not.
                command.env_remove(super::error_file::VARIABLE);
            }
            None => {
                command.stdin(Stdio::null());
                for name in OWN_VARIABLES {
                    command.env_remove(name);
                }
                let torchruns = std::env::vars_os().map(|(name, _)| name);
                for name in torchruns.filter(|name| name.as_encoded_bytes().starts_with(b"PET_")) {
                    command.env_remove(name);
                }
            }
        }
        match output {
            Output::Inherit => {}
            Output::Log(file) => drop(command.stdout(file.try_clone()?).stderr(file)),
            Output::Pipe(pipe) => drop(command.stdout(pipe)),
            Output::Each { stdout, stderr } => drop(command.stdout(stdout).stderr(stderr)),
        }
        os::bind_to_supervisor(&mut command, listener.as_ref().map(AsRawFd::as_raw_fd));
        let mut child = command.spawn()?;
        let control = child.stdin.take();
        let mut process = Self {
            child,
            control,
            unsent: handoff.unwrap_or_default(),
            stopping: false,
            lingering: false,
            reaped: false,
        };
        if let Some(control) = &process.control {
            rustix::io::ioctl_fionbio(control, true)?;
        }
        process.send();
        Ok(process)
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The control pipe, while there is data left to send.
    pub(crate) fn to_send(&self) -> Option<BorrowedFd<'_>> {
        self.control.as_ref().filter(|_| !self.unsent.is_empty()).map(|c| c.as_fd())
    }

    /// Writes as much as the pipe accepts without blocking.
    pub fn send(&mut self) {
        let Some(control) = &mut self.control else { return };
        while !self.unsent.is_empty() {
            match control.write(&self.unsent) {
                Ok(n) if n > 0 => drop(self.unsent.drain(..n)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // The worker closed its end. That is not an error if it is about to exit; its exit status shows it.
                _ => self.unsent.clear(),
            }
        }
    }

    /// Whether the worker has ended and its children have not, whose ends no signal tells.
    pub(crate) fn is_lingering(&self) -> bool {
        self.lingering
    }

    /// The worker's end, if it has ended. Its children in the process group are killed, unless they were asked to stop: then
    /// it has ended when they have, or when they are killed.
    pub(crate) fn try_reap(&mut self) -> io::Result<Option<WorkerStatus>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if rustix::process::waitid(WaitId::Pid(self.pid()), options)?.is_none() {
            return Ok(None);
        }
        self.lingering = self.stopping && self.has_children();
        if self.lingering {
            return Ok(None);
        }
        // Before the worker is reaped: until then, its process and group numbers can't be reused.
        self.signal_group(Signal::KILL);
        let status = self.child.wait()?;
        self.reaped = true;
        Ok(Some(status_of(status)))
    }

    /// Tells the worker that the run has failed.
    pub(crate) fn take_down(&mut self) {
        match self.control {
            None => self.stop(Signal::TERM),
            Some(_) if self.reaped => {}
            Some(_) => {
                self.unsent.extend_from_slice(TAKE_DOWN);
                self.send();
            }
        }
    }

    /// Asks the worker to stop, by SIGTERM. A worker without a handoff gets the `signal` that the supervisor got, with its
    /// children, as from a terminal.
    pub(crate) fn terminate(&mut self, signal: Signal) {
        match self.control {
            None => self.stop(signal),
            Some(_) if self.reaped => {}
            Some(_) => drop(rustix::process::kill_process(self.pid(), Signal::TERM)),
        }
    }

    /// Sends SIGKILL to the worker and its children.
    pub fn kill(&mut self) {
        self.stopping = false;
        self.signal_group(Signal::KILL);
    }

    /// Sends SIGSTOP to the worker and its children.
    pub fn pause(&self) {
        self.signal_group(Signal::STOP);
    }

    /// Sends SIGCONT to the worker and its children.
    pub fn resume(&self) {
        self.signal_group(Signal::CONT);
    }

    /// Gives up on a process that the kernel can't end, without waiting for it.
    pub(crate) fn abandon(mut self) {
        self.reaped = true;
    }

    fn stop(&mut self, signal: Signal) {
        self.stopping = true;
        self.signal_group(signal);
    }

    /// Whether its process group has others that are running.
    fn has_children(&self) -> bool {
        let group = self.id();
        ProcessStat::all().any(|stat| stat.group == group && stat.pid != group && !stat.has_ended())
    }

    fn signal_group(&self, signal: Signal) {
        if !self.reaped {
            let _ = rustix::process::kill_process_group(self.pid(), signal);
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            let _ = self.child.wait();
        }
    }
}

fn status_of(status: ExitStatus) -> WorkerStatus {
    match (status.code(), status.signal()) {
        (Some(code), _) => WorkerStatus::Exited(code),
        (None, signal) => {
            WorkerStatus::Signaled { signal: signal.unwrap_or(0), core_dumped: status.core_dumped() }
        }
    }
}
