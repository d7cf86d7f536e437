//! Output to standard error, and to standard output, that neither fails nor blocks: training continues, and can be stopped, if the terminal or
//! pipe is closed or not read. A thread writes. Text that exceeds a queue of `QUEUE_LIMIT` bytes is dropped, and a line
//! in its place reports the amount. Before the process exits, [`flush`] waits a short time for the thread.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::display;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Enough for several hundred failure reports.
const QUEUE_LIMIT: usize = 256 << 10;
/// More than is queued while the output is being read.
const OFFER_LIMIT: usize = 4 << 10;
/// How long the exit waits for the last output to be read.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

static STANDARD_ERROR: OutputQueue = OutputQueue::new(QUEUE_LIMIT, "standard error");
static STANDARD_OUTPUT: OutputQueue = OutputQueue::new(QUEUE_LIMIT, "standard output");

/// Like `eprintln!`, but drops output that can't be written. What names in files bring along can't control the terminal.
#[macro_export]
macro_rules! status {
    ($($arg:tt)*) => { $crate::status::line(format_args!($($arg)*)) };
}

/// Like [`status!`], for what `-q` leaves out.
#[macro_export]
macro_rules! info {
    ($($arg:tt)*) => { if !$crate::status::is_quiet() { $crate::status::line(format_args!($($arg)*)) } };
}

static QUIET: AtomicBool = AtomicBool::new(false);

/// Whether `info!` is silent.
pub fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Whether `info!` is silent; for the macro.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Writes a line made safe to print; for the macros [`status!`](crate::status!) and [`info!`](crate::info!).
pub fn line(text: fmt::Arguments<'_>) {
    put(format!("{}\n", display::message(&text.to_string())).into_bytes());
}

/// Queues a complete text, such as a line.
pub fn put(text: Vec<u8>) {
    match has_writer() {
        true => STANDARD_ERROR.put(text),
        false => write_whole(io::stderr(), &text),
    }
}

/// The same for standard output.
pub fn put_out(text: Vec<u8>) {
    static WRITER: OnceLock<bool> = OnceLock::new();
    let start = || started("say-out", || STANDARD_OUTPUT.run(|text| write_whole(io::stdout(), text)));
    match *WRITER.get_or_init(start) {
        true => STANDARD_OUTPUT.put(text),
        false => write_whole(io::stdout(), &text),
    }
}

/// Queues text that is only useful now, such as a progress bar; dropped silently if much is queued already.
pub fn offer(text: Vec<u8>) {
    if has_writer() && STANDARD_ERROR.lock().bytes < OFFER_LIMIT {
        STANDARD_ERROR.put(text);
    }
}

/// Waits until all output is written, or until the timeout. Call it before the process exits, except by a signal.
pub fn flush() {
    STANDARD_ERROR.flush(FLUSH_TIMEOUT);
    STANDARD_OUTPUT.flush(FLUSH_TIMEOUT);
}

/// A writer, for code that needs one. Each write is a separate text.
#[derive(Clone, Copy, Debug)]
pub struct StderrWriter;

impl Write for StderrWriter {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        put(text.to_vec());
        Ok(text.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn has_writer() -> bool {
    static WRITER: OnceLock<bool> = OnceLock::new();
    let start = || started("say", || STANDARD_ERROR.run(|text| write_whole(io::stderr(), text)));
    *WRITER.get_or_init(start)
}

fn started(name: &str, run: fn()) -> bool {
    std::thread::Builder::new().name(name.into()).spawn(run).is_ok()
}

/// Writes everything at once, because standard error is shared with other ranks and with a launcher, whose output
/// could come between the parts. It avoids the standard library's lock: a write that blocks would hold it, and a
/// panic needs it.
fn write_whole(to: impl AsFd, mut text: &[u8]) {
    while !text.is_empty() {
        match rustix::io::write(to.as_fd(), text) {
            Ok(n) => text = &text[n..],
            Err(Errno::INTR) => {}
            // Another process that shares this pipe has made it non-blocking.
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(&to, PollFlags::OUT)], None);
            }
            Err(_) => return,
        }
    }
}

/// The queue of texts to be written.
struct OutputQueue {
    state: Mutex<StatusState>,
    changed: Condvar,
    limit: usize,
    /// The name of the stream.
    name: &'static str,
}

struct StatusState {
    waiting: VecDeque<Vec<u8>>,
    /// Total size of `waiting`.
    bytes: usize,
    dropped: u64,
    writing: bool,
}

impl OutputQueue {
    const fn new(limit: usize, name: &'static str) -> Self {
        let state = StatusState { waiting: VecDeque::new(), bytes: 0, dropped: 0, writing: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), limit, name }
    }

    fn lock(&self) -> MutexGuard<'_, StatusState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, text: Vec<u8>) {
        let mut state = self.lock();
        if state.bytes >= self.limit {
            state.dropped += 1;
            return;
        }
        state.push_notice(self.name);
        state.push(text);
        self.changed.notify_all();
    }

    /// The loop of the writer thread.
    fn run(&self, mut write: impl FnMut(&[u8])) {
        loop {
            let text = self.next();
            write(&text);
        }
    }

    fn next(&self) -> Vec<u8> {
        let mut state = self.lock();
        state.writing = false;
        loop {
            if state.waiting.is_empty() {
                state.push_notice(self.name);
            }
            if let Some(text) = state.waiting.pop_front() {
                state.bytes -= text.len();
                state.writing = true;
                return text;
            }
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether all output was written in time.
    fn flush(&self, patience: Duration) -> bool {
        let busy = |state: &mut StatusState| state.writing || !state.waiting.is_empty();
        let waited = self.changed.wait_timeout_while(self.lock(), patience, busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl StatusState {
    fn push(&mut self, text: Vec<u8>) {
        self.bytes += text.len();
        self.waiting.push_back(text);
    }

    /// Queues a line with the amount that was dropped here.
    fn push_notice(&mut self, name: &str) {
        let n = std::mem::take(&mut self.dropped);
        if n > 0 {
            self.push(format!("({n} messages were dropped because {name} was not read)\n").into_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::HANG;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, sync_channel};

    /// A queue whose writer passes each text to the receiver and waits until it is received.
    fn queue(limit: usize) -> (Arc<OutputQueue>, Receiver<String>) {
        let queue = Arc::new(OutputQueue::new(limit, "it"));
        let (send, written) = sync_channel(0);
        let writer = Arc::clone(&queue);
        std::thread::spawn(move || {
            writer.run(|text| drop(send.send(String::from_utf8_lossy(text).into_owned())))
        });
        (queue, written)
    }

    #[track_caller]
    fn next(written: &Receiver<String>) -> String {
        written.recv_timeout(HANG).expect("the writer continues")
    }

    #[test]
    fn writing_never_blocks_and_dropped_text_is_counted() {
        let (queue, written) = queue(8);
        // Returns at once: nothing is received before all texts are queued.
        for n in 0..100 {
            queue.put(format!("{n:02}\n").into_bytes());
        }
        assert!(!queue.flush(Duration::ZERO), "it is not written");
        let (mut whole, mut dropped) = (Vec::new(), 0);
        while whole.len() + dropped < 100 {
            let text = next(&written);
            match text.strip_prefix('(').and_then(|t| t.split(' ').next()) {
                Some(n) => dropped += n.parse::<usize>().expect("how many"),
                None => whole.push(text),
            }
        }
        // 8 bytes in the queue, the text that exceeds it, and possibly one that the writer had already taken.
        assert!((3..=4).contains(&whole.len()), "{whole:?}");
        assert_eq!(whole[..3], ["00\n", "01\n", "02\n"]);
        assert!(whole.is_sorted(), "{whole:?}");
        assert!(queue.flush(HANG));
        queue.put(b"after\n".to_vec());
        assert_eq!(next(&written), "after\n");
    }

    #[test]
    fn a_flush_waits_for_what_is_being_written() {
        let (queue, written) = queue(8);
        queue.put(b"last\n".to_vec());
        assert!(!queue.flush(Duration::ZERO), "it is not taken");
        assert_eq!(next(&written), "last\n");
        assert!(queue.flush(HANG));
    }
}
