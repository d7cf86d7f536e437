//! The ends of processes, waited for with a limit that only a hang meets.

use super::{HUNG, within};
use std::io::Read;
use std::process::{Child, Output};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// What a process says, read on a thread: whoever has started it may be killed, and its own children still hold the pipe.
struct Pipe {
    said: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Pipe {
    fn read(mut pipe: impl Read + Send + 'static) -> Self {
        let said = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&said);
        let read = move || {
            let mut buffer = [0; 4096];
            while let Ok(n) = pipe.read(&mut buffer)
                && n > 0
            {
                to.lock().expect("nobody panics with it").extend_from_slice(&buffer[..n]);
            }
        };
        Self { said, reader: std::thread::spawn(read) }
    }

    fn said(&self) -> Vec<u8> {
        self.said.lock().expect("nobody panics with it").clone()
    }
}

/// The end of `child`, and what it said.
#[track_caller]
pub fn finish(child: Child) -> Output {
    finish_within(HUNG, child)
}

#[track_caller]
pub fn finish_within(limit: Duration, mut child: Child) -> Output {
    let stdout = child.stdout.take().map(Pipe::read);
    let stderr = child.stderr.take().map(Pipe::read);
    let closed = |pipe: &Option<Pipe>| pipe.as_ref().is_none_or(|p| p.reader.is_finished());
    let said = |pipe: &Option<Pipe>| pipe.as_ref().map(Pipe::said).unwrap_or_default();
    let mut status = None;
    let over = within(limit, || {
        status = status.or_else(|| child.try_wait().expect("it is our child"));
        status.is_some() && closed(&stdout) && closed(&stderr)
    });
    if !over {
        let _ = child.kill();
        let _ = child.wait();
        let (out, err) = (said(&stdout), said(&stderr));
        let (out, err) = (String::from_utf8_lossy(&out), String::from_utf8_lossy(&err));
        panic!("after {limit:?} there is no end ({status:?}); so far it said:\n{out}\n{err}");
    }
    Output { status: status.expect("it is over"), stdout: said(&stdout), stderr: said(&stderr) }
}
