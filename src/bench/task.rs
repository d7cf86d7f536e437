//! What the parent tells a worker (one JSON line on its standard input, which stays open after it) and what workers
//! tell the parent (JSON lines on their standard output).

use super::measure::Timing;
use super::plan::Plan;
use crate::comm::rendezvous::Secret;
use crate::error::{Error, ExitCode, Result};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write};
use std::os::fd::RawFd;

/// A line that is longer is not from us.
const MAX_LINE: u64 = 1 << 20;

#[derive(Serialize, Deserialize)]
pub struct Task {
    pub rank: usize,
    pub plan: Plan,
    pub meeting: Meeting,
    /// A pipe carries it, because arguments and environment are visible to others.
    pub secret: Secret,
    pub run_id: String,
}

/// How this worker meets the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Meeting {
    /// Rank 0: the listening socket is inherited under this number.
    Listener(RawFd),
    /// The others: it is here.
    Address(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "news")]
pub enum News {
    /// The next row, from rank 0.
    Row(Timing),
    Failed {
        code: ExitCode,
        message: String,
    },
    /// All rows are measured.
    Done,
}

impl Task {
    /// The line for the pipe, newline included.
    pub fn to_line(&self) -> Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)
            .map_err(|e| Error::internal(format!("the measurement can't be handed to a worker: {e}")))?;
        line.push(b'\n');
        Ok(line)
    }

    /// Reads the line and starts the thread that ends this process when the parent's end of the pipe closes.
    ///
    /// Errors: standard input has no task (someone typed `ddp-run bench-worker`).
    pub fn receive() -> Result<Self> {
        let by_hand = || {
            Error::usage("`ddp-run bench-worker` is started by `ddp-run bench`, not by hand")
                .hint("`ddp-run bench allreduce` measures")
        };
        let mut line = String::new();
        let read = io::stdin().lock().take(MAX_LINE).read_line(&mut line);
        read.map_err(|e| Error::internal(format!("cannot read the task from the pipe: {e}")))?;
        let task: Self = serde_json::from_str(&line).map_err(|_| by_hand())?;
        let watch = std::thread::Builder::new().name("parent-watch".into());
        watch
            .spawn(|| {
                // Nothing more is written to it, so any return but of data is the end.
                while io::stdin().lock().read(&mut [0; 64]).is_ok_and(|n| n > 0) {}
                // Without exit handlers: they may wait for threads that wait for peers.
                signal_hook::low_level::exit(ExitCode::WorkerFailed as i32)
            })
            .map_err(|e| Error::internal(format!("cannot start a thread: {e}")))?;
        Ok(task)
    }
}

impl News {
    /// Writes the line to standard output.
    pub fn tell(&self) -> Result<()> {
        let text =
            serde_json::to_string(self).map_err(|e| Error::internal(format!("cannot tell news: {e}")))?;
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")
            .and_then(|()| out.flush())
            .map_err(|e| Error::internal(format!("cannot tell the parent: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::tests::plan;

    #[test]
    fn a_task_is_one_line_and_comes_back() {
        let task = Task {
            rank: 1,
            plan: plan(),
            meeting: Meeting::Address("127.0.0.1:4711".into()),
            secret: Secret::derive(b"key", "a test"),
            run_id: "x".into(),
        };
        let line = task.to_line().unwrap();
        assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1);
        let back: Task = serde_json::from_slice(&line).unwrap();
        assert_eq!((back.rank, back.plan, back.meeting), (task.rank, task.plan, task.meeting));
        assert_eq!(back.secret, task.secret);
    }

    #[test]
    fn news_names_itself() {
        let failed = News::Failed { code: ExitCode::Internal, message: "a\nb".into() };
        let text = serde_json::to_string(&failed).unwrap();
        assert_eq!(text, r#"{"news":"failed","code":"Internal","message":"a\nb"}"#);
        assert_eq!(serde_json::from_str::<News>(&text).unwrap(), failed);
    }
}
