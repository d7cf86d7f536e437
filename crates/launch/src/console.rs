//! Which output of the workers appears on this process's terminal, by torchrun's `--tee`, `--redirects` and
//! `--local-ranks-filter`. Without them rank 0 writes to the terminal, and the others to their logs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, PipeReader, Read, Write};
use std::process::Stdio;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::worker::Output;
use base::error::{Error, Result};

/// The value of `--tee` and `--redirects`: `3` is both streams of all local ranks (1: standard output, 2: standard
/// error, 0: none), `0:3,1:2` is by local rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Streams {
    All(Std),
    Of(BTreeMap<usize, Std>),
}

/// Standard output, standard error, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Std {
    pub out: bool,
    pub err: bool,
}

/// The value of `--local-ranks-filter`: `0,2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalRanks(pub BTreeSet<usize>);

/// Where the workers' output goes. The default is described above.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Console {
    /// To the log and the terminal.
    pub(crate) tee: Option<Streams>,
    /// To the log only.
    pub(crate) redirects: Option<Streams>,
    /// Only these local ranks appear on the terminal.
    pub filter: Option<LocalRanks>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Out,
    Err,
}

/// The destinations of a stream; at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Route {
    log: bool,
    terminal: bool,
}

/// The largest local rank that a value may name.
const MAX_RANK: usize = 65_535;
/// Longer lines are passed on in pieces.
const LONGEST_LINE: u64 = 64 << 10;
/// How long the end of the workers waits for their last lines; a process that one has started may hold the pipe open.
const DRAIN: Duration = Duration::from_secs(5);

impl FromStr for Streams {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let std = |digit: &str| match digit.trim() {
            "0" => Some(Std { out: false, err: false }),
            "1" => Some(Std { out: true, err: false }),
            "2" => Some(Std { out: false, err: true }),
            "3" => Some(Std { out: true, err: true }),
            _ => None,
        };
        if let Some(all) = std(text) {
            return Ok(Self::All(all));
        }
        let pair = |pair: &str| {
            let (rank, digit) = pair.split_once(':')?;
            Some((rank.trim().parse().ok().filter(|rank| *rank <= MAX_RANK)?, std(digit)?))
        };
        let pairs: Option<BTreeMap<usize, Std>> = text.split(',').map(pair).collect();
        pairs.map(Self::Of).ok_or_else(|| {
            "expected 0 (none), 1 (standard output), 2 (standard error) or 3 (both) for all ranks, or LOCAL_RANK:N,…, as \
             in 0:3,1:2"
                .to_owned()
        })
    }
}

impl FromStr for LocalRanks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ranks: Option<_> =
            text.split(',').map(|r| r.trim().parse().ok().filter(|rank| *rank <= MAX_RANK)).collect();
        ranks.map(Self).ok_or_else(|| "expected local ranks, as in 0,2".to_owned())
    }
}

impl Streams {
    fn have(&self, local: usize, stream: Stream) -> bool {
        let std = match self {
            Self::All(std) => *std,
            Self::Of(ranks) => ranks.get(&local).copied().unwrap_or_default(),
        };
        match stream {
            Stream::Out => std.out,
            Stream::Err => std.err,
        }
    }

    fn last_rank(&self) -> Option<usize> {
        match self {
            Self::All(_) => None,
            Self::Of(ranks) => ranks.keys().next_back().copied(),
        }
    }
}

impl Console {
    /// Checks that the named local ranks exist on a node with `nproc` processes.
    ///
    /// # Errors
    /// One does not (exit 2).
    pub fn check(&self, nproc: usize) -> Result<()> {
        let last = |streams: &Option<Streams>| streams.as_ref().and_then(Streams::last_rank);
        let filtered = self.filter.as_ref().and_then(|ranks| ranks.0.last().copied());
        let named = [
            ("--tee", last(&self.tee)),
            ("--redirects", last(&self.redirects)),
            ("--local-ranks-filter", filtered),
        ];
        match named.into_iter().find_map(|(flag, rank)| Some((flag, rank.filter(|rank| *rank >= nproc)?))) {
            None => Ok(()),
            Some((flag, rank)) => Err(Error::usage(format!(
                "{flag} names local rank {rank}, but this node has {nproc} processes; local ranks go from 0 to {}",
                nproc.saturating_sub(1)
            ))),
        }
    }

    /// `first`: global rank 0.
    fn route(&self, local: usize, first: bool, stream: Stream) -> Route {
        let have = |streams: &Option<Streams>| streams.as_ref().is_some_and(|s| s.have(local, stream));
        let (tee, redirected) = (have(&self.tee), have(&self.redirects));
        let terminal = match &self.filter {
            Some(filter) => filter.0.contains(&local) && (tee || !redirected),
            None => tee || (first && !redirected),
        };
        Route { log: !first || tee || redirected || !terminal, terminal }
    }

    /// The output of a worker, whose log is `log`. `copies` gets what copies it to the terminal as well.
    pub(super) fn output(
        &self,
        local: usize,
        rank: usize,
        log: File,
        copies: &mut Copies,
    ) -> io::Result<Output> {
        let route = |stream| self.route(local, rank == 0, stream);
        let (out, err) = (route(Stream::Out), route(Stream::Err));
        match (out, err) {
            (Route { log: false, .. }, Route { log: false, .. }) => Ok(Output::Inherit),
            (Route { terminal: false, .. }, Route { terminal: false, .. }) => Ok(Output::Log(log)),
            _ => {
                let stdout = copies.stdio(out, Stream::Out, rank, &log)?;
                let stderr = copies.stdio(err, Stream::Err, rank, &log)?;
                Ok(Output::Each { stdout, stderr })
            }
        }
    }
}

/// Threads that copy the output of workers to their logs and to the terminal.
#[derive(Debug, Default)]
pub(super) struct Copies(Vec<Receiver<()>>);

impl Copies {
    fn stdio(&mut self, route: Route, stream: Stream, rank: usize, log: &File) -> io::Result<Stdio> {
        match route {
            Route { log: false, .. } => Ok(Stdio::inherit()),
            Route { terminal: false, .. } => Ok(log.try_clone()?.into()),
            Route { log: true, terminal: true } => {
                let (reader, writer) = io::pipe()?;
                let (log, (end, ended)) = (log.try_clone()?, channel());
                std::thread::Builder::new().name(format!("output-{rank}")).stack_size(128 << 10).spawn(
                    move || {
                        copy(reader, log, rank, stream);
                        drop(end);
                    },
                )?;
                self.0.push(ended);
                Ok(writer.into())
            }
        }
    }

    /// Waits until everything that the workers have written is in their logs; call it when they have ended.
    pub(super) fn finish(self) {
        self.finish_by(Instant::now() + DRAIN);
    }

    fn finish_by(self, until: Instant) {
        for ended in self.0 {
            // The sender is dropped at the end; nothing is ever sent.
            let _ = ended.recv_timeout(until.saturating_duration_since(Instant::now()));
        }
    }
}

/// Copies line by line, whether or not the terminal is read, until the worker and all that it has started have closed their ends.
fn copy(from: PipeReader, mut log: File, rank: usize, stream: Stream) {
    let (mut from, mut line, prefix) = (BufReader::new(from), Vec::new(), format!("[rank {rank}]: "));
    loop {
        line.clear();
        match from.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        // A full disk does not keep the worker from writing.
        let _ = log.write_all(&line);
        let mut shown = prefix.clone().into_bytes();
        shown.extend_from_slice(&line);
        if !line.ends_with(b"\n") {
            shown.push(b'\n');
        }
        match stream {
            Stream::Out => base::status::put_out(shown),
            Stream::Err => base::status::put(shown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::testing::HANG;
    use std::io::Seek;

    const LOG: Route = Route { log: true, terminal: false };
    const TERMINAL: Route = Route { log: false, terminal: true };
    const BOTH: Route = Route { log: true, terminal: true };

    fn console(tee: &str, redirects: &str, filter: &str) -> Console {
        let streams = |text: &str| (!text.is_empty()).then(|| text.parse().expect("streams"));
        let filter = (!filter.is_empty()).then(|| filter.parse().expect("ranks"));
        Console { tee: streams(tee), redirects: streams(redirects), filter }
    }

    /// The routes of standard output and error of local ranks 0 and 1 on the first node.
    fn routes(console: &Console) -> [[Route; 2]; 2] {
        [0, 1].map(|local| [Stream::Out, Stream::Err].map(|stream| console.route(local, local == 0, stream)))
    }

    #[test]
    fn streams_go_where_torchruns_flags_say() {
        assert_eq!(routes(&Console::default()), [[TERMINAL; 2], [LOG; 2]]);
        assert_eq!(routes(&console("3", "", "")), [[BOTH; 2]; 2]);
        assert_eq!(routes(&console("1:2", "", "")), [[TERMINAL; 2], [LOG, BOTH]]);
        assert_eq!(routes(&console("", "3", "")), [[LOG; 2]; 2]);
        assert_eq!(routes(&console("", "0:1", "")), [[LOG, TERMINAL], [LOG; 2]]);
        assert_eq!(routes(&console("", "0", "")), routes(&Console::default()));
        // A stream in both is copied.
        assert_eq!(routes(&console("0:3", "3", "")), [[BOTH; 2], [LOG; 2]]);
        // What is not redirected appears if its rank is named, and nothing else does.
        assert_eq!(routes(&console("", "", "1")), [[LOG; 2], [BOTH; 2]]);
        assert_eq!(routes(&console("3", "", "0")), [[BOTH; 2], [LOG; 2]]);
        assert_eq!(routes(&console("", "1:1", "0,1")), [[TERMINAL; 2], [LOG, BOTH]]);
        // Local rank 0 of another node.
        assert_eq!(Console::default().route(0, false, Stream::Out), LOG);
    }

    #[test]
    fn values_are_torchruns() {
        assert_eq!("2".parse(), Ok(Streams::All(Std { out: false, err: true })));
        for wrong in ["", "4", "0,1", "0:4", "a:1", "0:1,", "70000:1"] {
            assert!(wrong.parse::<Streams>().is_err(), "{wrong}");
        }
        assert_eq!("2, 0".parse(), Ok(LocalRanks([0, 2].into())));
        assert!("".parse::<LocalRanks>().is_err() && "0:1".parse::<LocalRanks>().is_err());
    }

    #[test]
    fn ranks_that_do_not_exist_are_refused() {
        assert!(console("0:3,1:3", "3", "1").check(2).is_ok());
        for (wrong, flag) in [
            (console("2:1", "", ""), "--tee names local rank 2"),
            (console("", "5:1", ""), "--redirects"),
            (console("", "", "0,2"), "--local-ranks-filter names local rank 2"),
        ] {
            assert!(wrong.check(2).is_err_and(|e| e.message.contains(flag)), "{flag}");
        }
    }

    /// In a process whose standard output nobody reads.
    #[test]
    #[ignore = "the next test starts it"]
    fn copies_to_standard_output() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let log = tempfile::tempfile().expect("a file");
        let mut kept = log.try_clone().expect("a descriptor");
        let copies = std::thread::spawn(move || copy(reader, log, 1, Stream::Out));
        // More than pipes and queues hold.
        (0..20_000).for_each(|n| writeln!(writer, "{n:0100}").expect("it is read"));
        drop(writer);
        copies.join().expect("no panic");
        kept.seek(io::SeekFrom::Start(0)).expect("a file");
        eprintln!("copied {} lines", BufReader::new(kept).lines().count());
    }

    #[test]
    fn a_worker_does_not_wait_for_a_terminal_that_nobody_reads() {
        let mut command = std::process::Command::new(std::env::current_exe().expect("this program"));
        let name = "console::tests::copies_to_standard_output";
        command.args(["--exact", name, "--ignored", "--nocapture"]);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("this program starts");
        let (line, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|text| line.send(text)));
        let told = std::iter::from_fn(|| lines.recv_timeout(HANG).ok()).find(|text| text.contains("copied"));
        // Its last lines may never be read.
        let _ = child.kill();
        let _ = child.wait();
        assert_eq!(told.as_deref(), Some("copied 20000 lines"));
    }

    #[test]
    fn copied_output_is_complete_in_the_log_when_the_worker_has_ended() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("rank-1.log");
        let log = File::create(&path).expect("created");
        let mut copies = Copies::default();
        let output = console("1:1", "", "").output(1, 1, log, &mut copies).expect("pipes");
        let Output::Each { stdout, stderr } = output else { panic!("{output:?}") };
        let script = "for n in 1 2 3 4 5 6 7 8 9; do echo out $n; done; printf end; echo error >&2";
        let mut command = std::process::Command::new("sh");
        command.args(["-c", script]).stdout(stdout).stderr(stderr);
        let mut child = command.spawn().expect("sh starts");
        drop(command);
        assert!(child.wait().expect("it ends").success());
        copies.finish_by(Instant::now() + HANG);
        let text = std::fs::read_to_string(&path).expect("read");
        let out: Vec<&str> = text.lines().filter(|line| line.starts_with("out ")).collect();
        assert_eq!(out.len(), 9, "{text}");
        assert!(text.contains("end") && text.contains("error\n"), "{text}");
    }
}
