//! Lines for the one who watches, on standard error. A terminal or a pipe that is gone, or that nobody reads, is no reason not to
//! train and none not to stop: nothing here fails or waits. A thread writes; what is said while [`WAITING`] bytes are in its queue is left
//! out, and how much that was is said at that place. Before the process ends, [`flush`] gives the thread a moment.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Some hundred reports of failures.
const WAITING: usize = 256 << 10;
/// More than waits while somebody reads.
const MUCH: usize = 4 << 10;
/// For what was said last to be read, when the process is about to end.
const LAST: Duration = Duration::from_secs(2);

static STANDARD_ERROR: Outlet = Outlet::new(WAITING);

/// As `eprintln!`, but what can't be written is left out.
macro_rules! say {
    ($($arg:tt)*) => { $crate::say::line(format_args!($($arg)*)) };
}

pub(crate) fn line(text: fmt::Arguments<'_>) {
    put(format!("{text}\n").into_bytes());
}

/// Text that is whole, such as a line.
pub(crate) fn put(text: Vec<u8>) {
    match has_writer() {
        true => STANDARD_ERROR.put(text),
        false => write_whole(&text),
    }
}

/// Text that is worth little later, such as a picture of how far it has come: left out without a word where much waits already.
pub(crate) fn offer(text: Vec<u8>) {
    if has_writer() && STANDARD_ERROR.lock().bytes < MUCH {
        STANDARD_ERROR.put(text);
    }
}

/// Returns when all that was said is written, or when nobody has read it in time. Before the process ends by any way but a signal.
pub(crate) fn flush() {
    STANDARD_ERROR.flush(LAST);
}

/// For what wants something to write to. Each write is a text of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said;

impl Write for Said {
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
    let start =
        || std::thread::Builder::new().name("say".into()).spawn(|| STANDARD_ERROR.run(write_whole)).is_ok();
    *WRITER.get_or_init(start)
}

/// In one write: standard error is shared with other ranks and with a launcher, whose words would come between the parts. Without
/// the standard library's lock, which a write that waits for a reader would keep from a panic.
fn write_whole(mut text: &[u8]) {
    let stderr = io::stderr();
    while !text.is_empty() {
        match rustix::io::write(stderr.as_fd(), text) {
            Ok(n) => text = &text[n..],
            Err(Errno::INTR) => {}
            // Someone else who has this pipe wants it so.
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None);
            }
            Err(_) => return,
        }
    }
}

/// What was said and is not written.
struct Outlet {
    state: Mutex<State>,
    changed: Condvar,
    limit: usize,
}

struct State {
    waiting: VecDeque<Vec<u8>>,
    /// Of `waiting`.
    bytes: usize,
    left_out: u64,
    writing: bool,
}

impl Outlet {
    const fn new(limit: usize) -> Self {
        let state = State { waiting: VecDeque::new(), bytes: 0, left_out: 0, writing: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), limit }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, text: Vec<u8>) {
        let mut state = self.lock();
        if state.bytes >= self.limit {
            state.left_out += 1;
            return;
        }
        state.mark();
        state.push(text);
        self.changed.notify_all();
    }

    /// The writer's life.
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
                state.mark();
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

    /// Whether all is written.
    fn flush(&self, patience: Duration) -> bool {
        let busy = |state: &mut State| state.writing || !state.waiting.is_empty();
        let waited = self.changed.wait_timeout_while(self.lock(), patience, busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl State {
    fn push(&mut self, text: Vec<u8>) {
        self.bytes += text.len();
        self.waiting.push_back(text);
    }

    /// Says what was left out here.
    fn mark(&mut self) {
        let n = std::mem::take(&mut self.left_out);
        if n > 0 {
            self.push(format!("({n} messages were left out: nobody read them)\n").into_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::testing::HANG;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel, sync_channel};

    /// An outlet whose writer hands each text to the receiver, and waits until that takes it.
    fn outlet(limit: usize) -> (Arc<Outlet>, Receiver<String>) {
        let outlet = Arc::new(Outlet::new(limit));
        let (send, written) = sync_channel(0);
        let writer = Arc::clone(&outlet);
        std::thread::spawn(move || {
            writer.run(|text| drop(send.send(String::from_utf8_lossy(text).into_owned())))
        });
        (outlet, written)
    }

    #[track_caller]
    fn next(written: &Receiver<String>) -> String {
        written.recv_timeout(HANG).expect("the writer goes on")
    }

    #[test]
    fn who_speaks_never_waits_and_what_nobody_reads_is_counted() {
        let (outlet, written) = outlet(8);
        // Returns at once, for nobody takes anything before all is said.
        for n in 0..100 {
            outlet.put(format!("{n:02}\n").into_bytes());
        }
        assert!(!outlet.flush(Duration::ZERO), "it is not written");
        let (mut whole, mut left_out) = (Vec::new(), 0);
        while whole.len() + left_out < 100 {
            let text = next(&written);
            match text.strip_prefix('(').and_then(|t| t.split(' ').next()) {
                Some(n) => left_out += n.parse::<usize>().expect("how many"),
                None => whole.push(text),
            }
        }
        // 8 bytes and what does not fit any more, and the one that the writer may have taken before.
        assert!((3..=4).contains(&whole.len()), "{whole:?}");
        assert!(whole.iter().enumerate().all(|(n, text)| *text == format!("{n:02}\n")), "{whole:?}");
        assert!(outlet.flush(HANG));
        outlet.put(b"after\n".to_vec());
        assert_eq!(next(&written), "after\n");
    }

    #[test]
    fn a_flush_waits_for_what_is_being_written() {
        let (outlet, written) = outlet(8);
        outlet.put(b"last\n".to_vec());
        let (send, flushed) = channel();
        let other = Arc::clone(&outlet);
        std::thread::spawn(move || send.send(other.flush(HANG)));
        assert!(flushed.try_recv().is_err(), "nobody has taken it");
        assert_eq!(next(&written), "last\n");
        assert_eq!(flushed.recv_timeout(HANG), Ok(true));
    }
}
