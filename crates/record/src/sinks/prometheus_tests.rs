use super::super::testing::{end, epoch, run, step, value as line};
use super::*;
use crate::samples::{checkpoint, restart};
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

/// A sample's name and labels.
type Series = (String, BTreeMap<String, String>);

/// Reads the text format strictly: each family has one HELP and one TYPE line, in this order, and then its samples.
fn parse(text: &str) -> BTreeMap<Series, f64> {
    let (mut samples, mut seen, mut family) = (BTreeMap::new(), BTreeSet::new(), String::new());
    let mut lines = text.split_inclusive('\n').map(|line| line.strip_suffix('\n').expect("ends"));
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("a help text");
            assert!(!help.is_empty() && seen.insert(name.to_owned()), "{line}");
            let kind = lines.next().and_then(|line| line.strip_prefix("# TYPE ")?.strip_prefix(name));
            let kind = kind.unwrap_or_else(|| panic!("no type of {name}"));
            assert!(
                [" gauge", " counter"].contains(&kind) && (kind == " counter") == name.ends_with("_total")
            );
            family = name.to_owned();
            continue;
        }
        let (series, value) = sample(line).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(series.0, family);
        assert!(samples.insert(series, value).is_none(), "twice: {line}");
    }
    samples
}

fn sample(line: &str) -> Option<(Series, f64)> {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let (name, mut rest) = line.split_once('{')?;
    let mut labels = BTreeMap::new();
    loop {
        let (label, text) = rest.split_once("=\"")?;
        let (mut value, mut chars) = (String::new(), text.char_indices());
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    _ => return None,
                }),
                (_, c) => value.push(c),
            }
        };
        (is_name(label) && labels.insert(label.to_owned(), value).is_none()).then_some(())?;
        rest = &text[end + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => break,
        }
    }
    let value = rest.strip_prefix("} ")?;
    is_name(name).then_some(())?;
    Some(((name.to_owned(), labels), value.parse().ok()?))
}

fn samples(path: &Path) -> BTreeMap<Series, f64> {
    parse(&fs::read_to_string(path).unwrap())
}

/// The value of the one series of this name with these labels and `run`.
fn value(samples: &BTreeMap<Series, f64>, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let mut all: BTreeMap<String, String> =
        labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    all.insert("run".to_owned(), "a \"run\"\\\n".to_owned());
    samples.get(&(format!("ddp_run_{name}"), all)).copied()
}

fn started(folder: &Path) -> TextFile {
    let mut run = run(folder, 2, 0);
    run.name = "a \"run\"\\\n".to_owned();
    run.restarts = 3;
    let mut sink = Prometheus::default().observer();
    sink.start(&run).unwrap();
    sink
}

#[test]
fn the_file_has_the_latest_values() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics/ddp_run.prom");
    let mut sink = started(dir.path());
    let now = samples(&path);
    let is = |name, labels: &[_]| value(&now, name, labels);
    assert_eq!(
        [is("up", &[]), is("step_total", &[]), is("restarts_total", &[])],
        [Some(1.0), Some(2.0), Some(3.0)]
    );
    assert_eq!(is("world_size", &[]), Some(2.0));
    assert_eq!(is("info", &[("version", env!("CARGO_PKG_VERSION")), ("commit", "abc123")]), Some(1.0));
    assert_eq!((is("loss", &[("split", "train")]), is("exit_code", &[])), (None, None));
    for event in [line(&restart()), epoch(0, true), step(5), line(&checkpoint(5)), epoch(1, false)] {
        sink.event(&event).unwrap();
    }
    // Less than a second may have passed since the first write.
    sink.idle().unwrap();
    let now = samples(&path);
    let is = |name, labels: &[_]| value(&now, name, labels);
    assert_eq!([is("loss", &[("split", "train")]), is("loss", &[("split", "val")])], [Some(0.2), Some(0.25)]);
    assert_eq!(is("metric", &[("split", "val"), ("name", "accuracy")]), Some(0.75));
    assert_eq!([is("step_total", &[]), is("epoch", &[])], [Some(8.0), Some(2.0)]);
    assert_eq!([is("learning_rate", &[]), is("samples_per_second", &[])], [Some(0.5), Some(100.0)]);
    assert_eq!([is("restarts_total", &[]), is("checkpoint_step", &[])], [Some(4.0), Some(5.0)]);
    assert!(is("checkpoint_timestamp_seconds", &[]).unwrap() > 1.7e9);
    // `max_steps` cuts the third epoch short.
    for event in [step(3), epoch(2, false), end(75)] {
        sink.event(&event).unwrap();
    }
    sink.end().unwrap();
    let now = samples(&path);
    let is = |name, labels: &[_]| value(&now, name, labels);
    assert_eq!([is("up", &[]), is("exit_code", &[]), is("epoch", &[])], [Some(0.0), Some(75.0), Some(2.0)]);
    assert!(is("loss", &[("split", "train")]).unwrap().is_nan());
    // No draft is left.
    assert_eq!(fs::read_dir(dir.path().join("metrics")).unwrap().count(), 1);
    promtool(&path);
}

/// Prometheus' own check, where it is installed.
fn promtool(path: &Path) {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(fs::File::open(path).unwrap());
    match command.stdout(Stdio::piped()).stderr(Stdio::piped()).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(_) => println!("skipped: promtool is not there"),
    }
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut sink = Prometheus { path: dir.path().join("collector/run.prom") }.observer();
    let error = sink.start(&run(dir.path(), 0, 0)).unwrap_err();
    assert!(error.message.contains("run.prom: No such file"), "{error}");
    // The collector's folder is not made here, but may be made meanwhile.
    fs::create_dir(dir.path().join("collector")).unwrap();
    sink.event(&step(1)).unwrap();
    sink.end().unwrap();
    assert_eq!(samples(&dir.path().join("collector/run.prom")).len(), 12);
}

#[test]
fn a_file_of_another_program_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("node.prom");
    fs::write(&path, "node_load1 0.5\n").unwrap();
    let mut sink = Prometheus { path: path.clone() }.observer();
    let error = sink.start(&run(dir.path(), 0, 0)).unwrap_err();
    assert!(error.message.ends_with("node.prom is of another program: it has no `ddp_run_…`"), "{error}");
    sink.event(&step(1)).unwrap_err();
    sink.end().unwrap_err();
    assert_eq!(fs::read_to_string(&path).unwrap(), "node_load1 0.5\n");
}
