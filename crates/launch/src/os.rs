//! The system calls that need `unsafe`: the child's side of `fork`, adopting an inherited descriptor, and the signal
//! mask.

#![allow(unsafe_code)]

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::FdFlags;

/// Makes the process that `command` starts die with the calling *thread* (Linux), lead its own process group, and
/// inherit only descriptors 0, 1, 2 and `pass`.
///
/// It needs its own group for two reasons: the terminal sends Ctrl-C to the whole foreground group, so a worker would
/// receive the signal twice, from the terminal and from the supervisor; and killing the group also ends the worker's
/// children.
pub fn bind_to_supervisor(command: &mut Command, pass: Option<RawFd>) {
    let supervisor = rustix::process::getpid();
    command.process_group(0);
    let in_child = move || -> io::Result<()> {
        #[cfg(target_os = "linux")]
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // If the supervisor died before the call above took effect, the signal never comes.
        if rustix::process::getppid() != Some(supervisor) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        close_on_exec_from(3);
        // A terminal with `tostop` would stop a background group that writes to it; with SIGTTOU ignored, the write succeeds.
        // SAFETY: `signal` is async-signal-safe and SIG_IGN installs no handler.
        unsafe { libc::signal(libc::SIGTTOU, libc::SIG_IGN) };
        if let Some(fd) = pass {
            // SAFETY: `pass` is open in the supervisor during `spawn`, so its copy is open here.
            rustix::io::fcntl_setfd(unsafe { BorrowedFd::borrow_raw(fd) }, FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes only async-signal-safe system calls. It does not allocate
    // (`from_raw_os_error` stores a number) and takes no lock that another thread may have held at the fork.
    unsafe { command.pre_exec(in_child) };
}

/// Minor and major page faults of this process so far.
pub fn page_faults() -> Option<u64> {
    // SAFETY: a struct of integers, for which all zeros are values.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes one `rusage`.
    let done = unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    (done == 0).then(|| usage.ru_minflt.unsigned_abs() + usage.ru_majflt.unsigned_abs())
}

/// Keeps descriptors that a parent of the supervisor left open from the workers. They are marked close-on-exec, not
/// closed, because `Command` reports a failed exec through one of them.
fn close_on_exec_from(first: libc::c_uint) {
    // SAFETY: the call takes three integers and only changes flags of descriptors. Kernels before 5.11 reject it;
    // such descriptors are then inherited, as without this call.
    #[cfg(target_os = "linux")]
    unsafe {
        libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
    };
    #[cfg(not(target_os = "linux"))]
    let _ = first;
}

/// Takes over the inherited listening socket `fd`, and makes it close-on-exec.
///
/// Errors: `fd` is not an open, listening socket. Call it only once per descriptor: the listener owns it.
pub fn adopt_listener(fd: RawFd) -> io::Result<TcpListener> {
    if fd < 3 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("descriptor {fd} is a standard stream"),
        ));
    }
    // SAFETY: F_GETFD only reads flags, and fails with EBADF if the descriptor is not open.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open (above), and nothing else in this process owns it: it came with the handoff.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    if !listens(fd.as_fd())? {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the inherited descriptor is not a listening socket",
        ));
    }
    rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    Ok(TcpListener::from(fd))
}

#[cfg(not(target_vendor = "apple"))]
fn listens(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(rustix::net::sockopt::socket_acceptconn(fd)?)
}

#[cfg(target_vendor = "apple")]
fn listens(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(rustix::net::getsockname(fd).is_ok())
}

/// Unblocks `signals` in the calling thread: the mask is inherited, and a launcher may have blocked them.
pub fn unblock(signals: &[i32]) -> io::Result<()> {
    // SAFETY: sigemptyset initialises `set` before it is read, and `set` outlives the calls.
    let status = unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut())
    };
    if status == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(status)) }
}

/// A write over the file size limit (`ulimit -f`) fails with an error instead of a signal that kills the process.
/// Child processes inherit this.
pub fn fail_at_the_file_size_limit() {
    // SAFETY: SIG_IGN installs no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Whether `signal` is ignored, since the start of this process or by its own choice.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: without a new action the call only writes the current one to `now`, for which all zeroes are valid.
    unsafe {
        let mut now = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(signal, std::ptr::null(), &mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::{AsRawFd, IntoRawFd};
    use std::process::Stdio;

    use super::*;

    fn stdout_of(mut command: Command) -> String {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("spawn");
        let mut out = String::new();
        child.stdout.take().expect("piped").read_to_string(&mut out).expect("read");
        assert!(child.wait().expect("wait").success());
        out
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_child_inherits_the_passed_descriptor_and_no_other() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let leak = std::fs::File::open("/dev/null").expect("open");
        rustix::io::fcntl_setfd(&leak, FdFlags::empty()).expect("fcntl");
        let list = |pass| {
            let mut command = Command::new("sh");
            // Lists the shell's descriptors: those of `ls` include the directory that it reads.
            command.args(["-c", "ls /proc/$$/fd"]);
            bind_to_supervisor(&mut command, pass);
            stdout_of(command)
        };
        let with = list(Some(listener.as_raw_fd()));
        assert!(with.lines().any(|l| l == listener.as_raw_fd().to_string()), "{with}");
        assert!(!with.lines().any(|l| l == leak.as_raw_fd().to_string()), "{with}");
        let without = list(None);
        assert!(!without.lines().any(|l| l == listener.as_raw_fd().to_string()), "{without}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_child_leads_its_own_process_group() {
        let mut command = Command::new("sh");
        command.args(["-c", "cut -d' ' -f1,5 /proc/$$/stat"]);
        bind_to_supervisor(&mut command, None);
        let out = stdout_of(command);
        let (pid, group) = out.trim().split_once(' ').expect("two numbers");
        assert_eq!(pid, group);
    }

    #[test]
    fn adopts_a_listening_socket_and_nothing_else() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let addr = listener.local_addr().expect("addr");
        let adopted = adopt_listener(listener.into_raw_fd()).expect("adopt");
        assert_eq!(adopted.local_addr().expect("addr"), addr);
        assert!(rustix::io::fcntl_getfd(&adopted).expect("fcntl").contains(FdFlags::CLOEXEC));
        let file = std::fs::File::open("/dev/null").expect("open");
        assert!(adopt_listener(file.into_raw_fd()).is_err());
        assert!(adopt_listener(0).is_err());
        assert!(adopt_listener(1 << 20).is_err());
    }

    #[test]
    fn recognises_ignored_signals() {
        // The Rust runtime ignores it.
        assert!(is_ignored(libc::SIGPIPE));
        assert!(!is_ignored(libc::SIGWINCH));
    }

    #[test]
    fn unblocks_inherited_signals() {
        let blocked = |signal| {
            // SAFETY: with a null new set, the call only reads the mask into `set`.
            unsafe {
                let mut set = std::mem::zeroed::<libc::sigset_t>();
                libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut set);
                libc::sigismember(&set, signal) == 1
            }
        };
        std::thread::spawn(move || {
            // SAFETY: as above; the mask belongs to this thread only.
            unsafe {
                let mut set = std::mem::zeroed::<libc::sigset_t>();
                libc::sigemptyset(&mut set);
                libc::sigaddset(&mut set, libc::SIGUSR2);
                libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            }
            assert!(blocked(libc::SIGUSR2));
            unblock(&[libc::SIGUSR2]).expect("unblock");
            assert!(!blocked(libc::SIGUSR2));
        })
        .join()
        .expect("thread");
    }
}
