//! Each rank's log, `logs/rank-N.log`: who writes it, and how its tail is read.
//!
//! The supervisor appends a header line at every start. Standard output and error of ranks above 0 go to the file;
//! rank 0 keeps the supervisor's, so that its progress appears on the terminal, and only its tracing goes to the
//! file. Panics are written to the file on every rank ([`record_panics`]).

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde_json::json;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::format::{FmtSpan, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use super::error_file::write_error_file_of;
use super::failure::Failure;
use super::handoff::Handoff;
use base::error::{Error, IoContext, Result};
use base::files;
use base::status::StderrWriter;
use record::Profile;
use record::history::LOG_HEADERS;

/// Prefix of a header line; [`tail`] uses it to find the beginning of an attempt.
const HEADER: &str = LOG_HEADERS[0];
/// The same with `--log-format json`, in its message.
const JSON_HEADER: &str = LOG_HEADERS[1];

/// Number of lines and bytes of a log that a report shows.
pub(crate) const TAIL_LINES: usize = 15;
pub(crate) const TAIL_BYTES: u64 = 16 << 10;

/// `--log-format`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "`--help` prints what is documented")]
pub enum LogFormat {
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

/// `-v` and `-q`: how much is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verbosity {
    /// `-q`: warnings and errors.
    Quiet,
    /// Also information about the run's course.
    #[default]
    Normal,
    /// `-v`: also what helps to find an error.
    Verbose,
    /// `-vv`: also every step, phase and collective.
    Trace,
}

/// `--log-format`, and `-v` or `-q`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LogOptions {
    /// Of a log's lines.
    pub format: LogFormat,
    /// How much is logged.
    pub verbosity: Verbosity,
}

/// The target of events whose text is also printed to standard error.
pub const ALREADY_PRINTED: &str = "ddp_run::said";

/// The variables with a filter for logs, in the syntax of `EnvFilter`. The first that is set counts.
const FILTERS: [&str; 2] = ["DDP_RUN_LOG", "RUST_LOG"];

impl Verbosity {
    /// The level of a rank's log.
    fn of_worker(self) -> &'static str {
        match self {
            Self::Quiet => "warn",
            Self::Normal => "info",
            Self::Verbose => "debug",
            Self::Trace => "trace",
        }
    }

    /// The level of what appears on the terminal. CubeCL warns of what it tries again otherwise, and of each call to a
    /// device that has failed, dozens of times.
    fn of_terminal(self) -> &'static str {
        match self {
            Self::Quiet | Self::Normal => "warn,cubecl=error",
            Self::Verbose => "info",
            Self::Trace => "debug",
        }
    }

    /// Whether lines have the module that they are from, by which a filter can be written.
    fn names_modules(self, get: &dyn Fn(&str) -> Option<String>) -> bool {
        matches!(self, Self::Verbose | Self::Trace) || FILTERS.iter().any(|name| get(name).is_some())
    }

    /// The filter of a log whose usual level is `level`: the flags win over the variables. Flags are about this
    /// program's own messages; those of libraries stay at `info`.
    fn filter(self, level: &str, get: &dyn Fn(&str) -> Option<String>) -> Result<EnvFilter> {
        let set = |name: &&str| get(name).filter(|value| !value.trim().is_empty());
        let variable = FILTERS.iter().find_map(|name| Some((*name, set(name)?)));
        match variable.filter(|_| self == Self::Normal) {
            Some((name, directives)) => EnvFilter::try_new(&directives).map_err(|e| {
                Error::usage(format!("{name} is `{directives}`: {e}")).hint("DDP_RUN_LOG=debug shows more")
            }),
            None => Ok(EnvFilter::new(match level {
                "debug" | "trace" => format!("info,ddp_run={level}"),
                _ => level.to_owned(),
            })),
        }
    }
}

/// The log of a rank.
pub fn path(log_dir: &Path, rank: usize) -> PathBuf {
    log_dir.join(format!("rank-{rank}.log"))
}

/// Opens a rank's log for appending, so that writes of several processes do not mix, and writes the header line.
pub fn open_with_header<J>(handoff: &Handoff<J>, format: LogFormat) -> Result<File> {
    let path = path(&handoff.log_dir, handoff.place.rank);
    let mut file = open(&path)?;
    let (place, mut now) = (&handoff.place, String::new());
    let _ = SystemTime.format_time(&mut Writer::new(&mut now));
    let start = format!(
        "{} rank {}/{} attempt {} generation {} run {}",
        env!("CARGO_PKG_VERSION"),
        place.rank,
        place.world_size,
        handoff.attempt,
        handoff.generation,
        handoff.run_id
    );
    let mut line = match format {
        LogFormat::Text => format!("{HEADER}{start} at {now} ===\n"),
        // With the keys of an event.
        LogFormat::Json => {
            let event = json!({ "timestamp": now, "level": "INFO", "message": format!("{JSON_HEADER}{start}"), "target": ALREADY_PRINTED });
            format!("{event}\n")
        }
    };
    // A killed worker may have left an incomplete line.
    if !ends_with_newline(&path).unwrap_or(true) {
        line.insert(0, '\n');
    }
    file.write_all(line.as_bytes()).doing("write", &path).map_err(elsewhere)?;
    Ok(file)
}

fn open(path: &Path) -> Result<File> {
    let file = files::open_with(path, OpenOptions::new().create(true).append(true));
    file.doing("open the log", path).map_err(elsewhere)
}

/// Adds the hint for a log that a run can't write.
pub(crate) fn elsewhere(error: Error) -> Error {
    error.hint("`--out DIR` and `--log-dir DIR` write elsewhere")
}

fn ends_with_newline(path: &Path) -> io::Result<bool> {
    let mut file = files::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last[0] == b'\n')
}

/// Whether standard error is this file already: then nothing of it appears on a terminal.
fn is_standard_error(file: &File) -> bool {
    let same = |a: rustix::fs::Stat, b: rustix::fs::Stat| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
    rustix::fs::fstat(file).and_then(|a| Ok(same(a, rustix::fs::fstat(io::stderr())?))).unwrap_or(false)
}

/// Sends the worker's tracing to its log, and what `-v` asks for to the terminal. `DDP_RUN_LOG`, or `RUST_LOG`, sets the level (default `info`; `EnvFilter`
/// syntax). Call it once, right after [`Handoff::take`]. `profile` is the recording of `--profile`.
pub fn init_worker<J>(handoff: &Handoff<J>, options: LogOptions, profile: Option<Profile>) -> Result<()> {
    let file = open(&path(&handoff.log_dir, handoff.place.rank))?;
    let verbosity = options.verbosity;
    base::status::set_quiet(verbosity == Verbosity::Quiet);
    let terminal = (!is_standard_error(&file)).then_some(verbosity.of_terminal());
    install(options, Mutex::new(file), verbosity.of_worker(), terminal, profile)
}

/// Sets up the tracing of a supervisor, or of a program without workers: warnings go to standard error.
pub fn init_terminal(options: LogOptions) -> Result<()> {
    install(options, || StderrWriter, options.verbosity.of_terminal(), None, None)
}

/// Sets up tracing for a process that may not write to its run's folder: none unless `DDP_RUN_LOG` or `RUST_LOG`
/// requests it, and then to standard error.
pub fn init_without(options: LogOptions) -> Result<()> {
    install(options, || StderrWriter, "off", None, None)
}

/// Sends events to `writer` from `level` on; to standard error from `terminal` on, except for those that are printed anyway.
fn install<W>(
    options: LogOptions,
    writer: W,
    level: &str,
    terminal: Option<&str>,
    profile: Option<Profile>,
) -> Result<()>
where
    W: for<'a> tracing_subscriber::fmt::MakeWriter<'a> + Send + Sync + 'static,
{
    let get = |name: &str| std::env::var(name).ok();
    let filter = |level: &str| options.verbosity.filter(level, &get);
    let modules = options.verbosity.names_modules(&get);
    // The end of a span has its length. There are none at the usual levels.
    let log = layer(options.format, writer, FmtSpan::CLOSE, modules).with_filter(filter(level)?);
    let terminal = match terminal {
        Some(level) => {
            let unsaid = filter_fn(|event| event.target() != ALREADY_PRINTED);
            let layer = layer(options.format, || StderrWriter, FmtSpan::NONE, modules);
            Some(layer.with_filter(filter(level)?).with_filter(unsaid))
        }
        None => None,
    };
    let profile = profile.map(|profile| profile.with_filter(filter_fn(Profile::records)));
    let done = tracing_subscriber::registry().with(log).with(terminal).with(profile).try_init();
    done.map_err(|e| Error::internal(format!("tracing is already set up: {e}")))
}

fn layer<S, W>(format: LogFormat, writer: W, spans: FmtSpan, modules: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> tracing_subscriber::fmt::MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer).with_span_events(spans);
    match format {
        LogFormat::Text => layer.with_target(modules).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    }
}

/// Writes a panic to the rank's log and to standard error, and leaves a failure note.
pub fn record_panics<J>(handoff: &Handoff<J>) {
    let (log_dir, rank) = (handoff.log_dir.clone(), handoff.place.rank);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if base::panics::expected() {
            return before(info);
        }
        let thread = std::thread::current();
        let message = format!("thread `{}` {info}", thread.name().unwrap_or("unnamed"));
        // Standard error of the other ranks is their log already.
        if rank == 0 {
            tracing::error!(target: ALREADY_PRINTED, "{message}");
        }
        let error = Error::internal(message).hint("this is a bug in ddp-run; please report it with the log");
        let note = Failure::new(rank, &error);
        let _ = note.write(&log_dir);
        write_error_file_of(&note);
        let trace = Backtrace::capture();
        match trace.status() {
            BacktraceStatus::Captured => status!("{}\n{trace}", error.message),
            _ => status!("{}", error.message),
        }
    }));
}

/// The last `lines` lines of the newest attempt in a log, from its last `max_bytes` bytes, without control characters.
pub fn tail(path: &Path, lines: usize, max_bytes: u64) -> io::Result<Vec<String>> {
    let mut file = files::open(path)?;
    let len = file.metadata()?.len();
    let start = len.saturating_sub(max_bytes);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(max_bytes).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut found: Vec<&str> = text.lines().collect();
    if start > 0 && !found.is_empty() {
        // The first line may be incomplete.
        found.remove(0);
    }
    let header =
        |line: &&str| line.starts_with(HEADER) || line.starts_with('{') && line.contains(JSON_HEADER);
    let attempt = found.iter().rposition(header).map_or(0, |i| i + 1);
    let shown = found[attempt..].iter().map(|l| printable(l)).filter(|l| !l.is_empty()).collect::<Vec<_>>();
    Ok(shown[shown.len().saturating_sub(lines)..].to_vec())
}

/// Removes escape sequences, so that a log can't control the terminal that shows it. Of a line overwritten with
/// carriage returns (a progress bar) only the last version is kept.
fn printable(line: &str) -> String {
    let last = line.trim_end().rsplit('\r').next().unwrap_or_default();
    let mut out = String::with_capacity(last.len());
    let mut chars = last.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => {
                // CSI: parameters, then one letter. Of other sequences only the introducer is removed.
                let mut rest = chars.clone();
                if rest.next() == Some('[') {
                    rest.by_ref().find(|c| ('\u{40}'..='\u{7e}').contains(c));
                    chars = rest;
                }
            }
            '\t' => out.push_str("    "),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Endpoint, RankPosition};
    use collectives::rendezvous::Secret;

    fn handoff(folder: &Path) -> Handoff<()> {
        let secret = Secret::generate().expect("random");
        let mut handoff = Handoff::new(RankPosition::on_one_node(1, 2), Endpoint::Solo, secret, ());
        handoff.log_dir = folder.to_path_buf();
        handoff
    }

    #[test]
    fn a_log_that_is_a_pipe_is_refused() {
        let folder = tempfile::tempdir().expect("tempdir");
        let pipe = base::testing::pipe(folder.path()).unwrap();
        assert!(open(&pipe).expect_err("nobody reads it").message.contains("no regular file"));
        assert!(tail(&pipe, 1, 100).is_err());
    }

    #[test]
    fn a_filter_is_that_of_the_flags_else_of_the_first_variable() {
        let filter = |verbosity: Verbosity, vars: &[(&str, &str)]| {
            let get = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
            verbosity.filter(verbosity.of_worker(), &get).map(|filter| filter.to_string())
        };
        let (own, rust) = (("DDP_RUN_LOG", "debug"), ("RUST_LOG", "error"));
        assert_eq!(filter(Verbosity::Normal, &[]).expect("valid"), "info");
        assert_eq!(filter(Verbosity::Normal, &[rust]).expect("valid"), "error");
        assert_eq!(filter(Verbosity::Normal, &[rust, own]).expect("valid"), "debug");
        assert_eq!(filter(Verbosity::Normal, &[rust, ("DDP_RUN_LOG", " ")]).expect("valid"), "error");
        assert_eq!(filter(Verbosity::Quiet, &[rust, own]).expect("valid"), "warn");
        let traced = filter(Verbosity::Trace, &[rust]).expect("valid");
        assert!(traced.contains("ddp_run=trace") && traced.contains("info"), "{traced}");
        let wrong = filter(Verbosity::Normal, &[("RUST_LOG", "a=b=c")]).expect_err("no filter");
        assert!(wrong.message.starts_with("RUST_LOG is `a=b=c`"), "{wrong}");
    }

    #[test]
    fn the_tail_shows_the_newest_attempt_only() {
        let folder = tempfile::tempdir().expect("tempdir");
        let handoff = handoff(folder.path());
        let mut log = open_with_header(&handoff, LogFormat::Text).expect("open");
        log.write_all(b"old\nhalf a line").expect("write");
        let mut log = open_with_header(&handoff, LogFormat::Text).expect("open");
        let path = path(folder.path(), 1);
        assert_eq!(tail(&path, 5, 1 << 12).expect("read"), Vec::<String>::new());
        log.write_all(b"one\n\ntwo\nthree").expect("write");
        assert_eq!(tail(&path, 2, 1 << 12).expect("read"), ["two", "three"]);
        assert_eq!(tail(&path, 9, 1 << 12).expect("read"), ["one", "two", "three"]);
        // The earlier attempt is complete, and the header is on its own line.
        let text = std::fs::read_to_string(&path).expect("read");
        assert_eq!(text.lines().filter(|l| l.starts_with(HEADER)).count(), 2, "{text}");
        assert!(text.contains("half a line\n"));
    }

    #[test]
    fn the_tail_is_bounded_and_has_no_control_characters() {
        let folder = tempfile::tempdir().expect("tempdir");
        let path = folder.path().join("x.log");
        std::fs::write(&path, format!("{}\nlast\n", "x".repeat(100_000))).expect("write");
        assert_eq!(tail(&path, 5, 1000).expect("read"), ["last"]);
        std::fs::write(&path, b"10%\r20%\r\x1b[31mred\x1b[0m\x07 \xff\x1b]0;title\n").expect("write");
        assert_eq!(tail(&path, 5, 1000).expect("read"), ["red \u{fffd}]0;title"]);
        assert!(tail(&folder.path().join("none"), 5, 10).is_err());
    }
}
