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

/// A running worker. Dropping it kills it and its children.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Kept open until the worker has ended: end-of-file means to the worker that the supervisor is dead.
    control: Option<ChildStdin>,
    /// The rest of the handoff, and a word after it, that is not in the pipe yet. A pipe holds 64 KiB; the rest
    /// follows as the worker reads, so that a worker that does not read can't block the supervisor.
    unsent: Vec<u8>,
    reaped: bool,
}

/// Where a worker's standard output and error go.
#[derive(Debug)]
pub enum Output {
    Inherit,
    Log(File),
    /// Standard output only.
    Pipe(PipeWriter),
    Each {
        stdout: Stdio,
        stderr: Stdio,
    },
}

impl Process {
    /// Starts `command` with `handoff` as its first input. It inherits `listener`, which is then closed here, and no
    /// other descriptor. The worker dies with the calling thread, which must therefore live as long as the run: the
    /// main thread.
    pub fn start(
        mut command: Command,
        handoff: Vec<u8>,
        output: Output,
        listener: Option<TcpListener>,
    ) -> io::Result<Self> {
        command.stdin(Stdio::piped());
        // They are for externally launched workers; these workers do not need them.
        command.env_remove("DDP_RUN_SECRET").env_remove("DDP_RUN_SECRET_FILE");
        // The supervisor knows the culprit: a rank that lost its peer does not.
        command.env_remove(super::error_file::VARIABLE);
        match output {
            Output::Inherit => {}
            Output::Log(file) => drop(command.stdout(file.try_clone()?).stderr(file)),
            Output::Pipe(pipe) => drop(command.stdout(pipe)),
            Output::Each { stdout, stderr } => drop(command.stdout(stdout).stderr(stderr)),
        }
        os::bind_to_supervisor(&mut command, listener.as_ref().map(AsRawFd::as_raw_fd));
        let mut child = command.spawn()?;
        let control = child.stdin.take();
        let mut process = Self { child, control, unsent: handoff, reaped: false };
        if let Some(control) = &process.control {
            rustix::io::ioctl_fionbio(control, true)?;
        }
        process.send();
        Ok(process)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The control pipe, while there is data left to send.
    pub fn to_send(&self) -> Option<BorrowedFd<'_>> {
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

    /// The worker's end, if it has ended. Its children in the process group are killed.
    pub fn try_reap(&mut self) -> io::Result<Option<WorkerStatus>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if rustix::process::waitid(WaitId::Pid(self.pid()), options)?.is_none() {
            return Ok(None);
        }
        // Before the worker is reaped: until then, its process and group numbers can't be reused.
        self.signal_group(Signal::KILL);
        let status = self.child.wait()?;
        self.reaped = true;
        Ok(Some(status_of(status)))
    }

    /// Tells the worker that the run has failed.
    pub fn take_down(&mut self) {
        if !self.reaped {
            self.unsent.extend_from_slice(TAKE_DOWN);
            self.send();
        }
    }

    pub fn terminate(&mut self) {
        if !self.reaped {
            let _ = rustix::process::kill_process(self.pid(), Signal::TERM);
        }
    }

    pub fn kill(&mut self) {
        self.signal_group(Signal::KILL);
    }

    pub fn pause(&self) {
        self.signal_group(Signal::STOP);
    }

    pub fn resume(&self) {
        self.signal_group(Signal::CONT);
    }

    /// Gives up on a process that the kernel can't end, without waiting for it.
    pub fn abandon(mut self) {
        self.reaped = true;
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
