use super::*;
use crate::lines::MAX_LINE;
use crate::samples::{self, checkpoint, end, line, restart};
use crate::{EndEvent, EpochEvent};
use base::error::ErrorKind;

fn step(step: u64) -> Event {
    samples::step(step, 1.0 / step as f64)
}

fn epoch(epoch: u64) -> Event {
    Event::Epoch(EpochEvent { step: (epoch + 1) * 4, ..samples::epoch(epoch, 0.5) })
}

fn written(events: &[Event]) -> (tempfile::TempDir, PathBuf, MetricsWriter) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics.jsonl");
    let mut writer = MetricsWriter::open(&path).unwrap();
    for event in events {
        writer.write(&Stamped::now(event)).unwrap();
    }
    (dir, path, writer)
}

#[test]
fn truncates_events_after_the_checkpoint() {
    let (_dir, path, mut writer) = written(&[
        step(1),
        step(2),
        step(3),
        step(4),
        checkpoint(4),
        epoch(0),
        step(5),
        step(6),
        restart(),
        step(7),
    ]);
    writer.truncate_after(5, 1).unwrap();
    writer.write(&Stamped::now(&step(6))).unwrap();
    let left = [step(1), step(2), step(3), step(4), checkpoint(4), epoch(0), step(5), restart(), step(6)];
    assert_eq!(read_events(&path).unwrap(), left);
    assert!(!path.with_extension("jsonl.partial").exists());
}

#[test]
fn removes_the_line_of_an_epoch_not_yet_completed_by_the_checkpoint() {
    // The checkpoint at the epoch's last step was written, but the epoch did not count as completed.
    let (_dir, path, mut writer) = written(&[step(4), checkpoint(4), epoch(0)]);
    writer.truncate_after(4, 0).unwrap();
    assert_eq!(read_events(&path).unwrap(), [step(4), checkpoint(4)]);
}

#[test]
fn removes_a_torn_last_line_on_open() {
    let (_dir, path, writer) = written(&[step(1), step(2)]);
    drop(writer);
    let whole = fs::read(&path).unwrap();
    for cut in 1..whole.len() / 2 {
        fs::write(&path, &whole[..whole.len() - cut]).unwrap();
        assert_eq!(read_events(&path).unwrap(), [step(1)], "cut by {cut}");
        let mut writer = MetricsWriter::open(&path).unwrap();
        writer.write(&Stamped::now(&step(2))).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.lines().count() == 2 && text.ends_with("}\n"), "cut by {cut}: {text}");
        assert_eq!(read_events(&path).unwrap(), [step(1), step(2)], "cut by {cut}");
    }
}

#[test]
fn removes_a_line_torn_at_any_byte_and_keeps_complete_lines() {
    let line = |event: &Event| line(event).trim_end().to_owned();
    let end = Event::End(EndEvent {
        step: 2,
        epoch: 0,
        reason: "no `{\"event\":` \u{e9}".into(),
        exit_code: 70,
        seconds: 1.5e-7,
    });
    let (first, torn, last) = (line(&step(1)), line(&end), line(&step(3)));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics.jsonl");
    let whole = format!("{first}\n{last}\n");
    // With a cut at zero, an empty line: nothing of the event was written.
    for cut in 1..torn.len() {
        let torn = &torn.as_bytes()[..cut];
        let newline: &[u8] = b"\n";
        // Followed by the next line without a newline, once or twice, or on a separate line.
        for middle in [&[torn][..], &[torn, torn], &[torn, newline], &[torn, newline, torn]] {
            let bytes = [first.as_bytes(), newline, &middle.concat(), last.as_bytes(), newline].concat();
            fs::write(&path, &bytes).unwrap();
            assert_eq!(read_events(&path).unwrap(), [step(1), step(3)], "cut at {cut}");
            MetricsWriter::open(&path).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), whole, "cut at {cut}");
        }
    }
    // The line is complete; only its newline is missing.
    fs::write(&path, format!("{first}\n{torn}{last}\n")).unwrap();
    MetricsWriter::open(&path).unwrap();
    assert_eq!(read_events(&path).unwrap(), [step(1), end, step(3)]);
}

#[test]
fn removes_a_partially_written_line() {
    let (_dir, path, mut writer) = written(&[step(1)]);
    let full = writer.lines.append_by(line(&step(2)).as_bytes(), |mut file, line| {
        file.write_all(&line[..line.len() / 2])?;
        Err(std::io::ErrorKind::StorageFull.into())
    });
    assert_eq!(full.unwrap_err().kind, ErrorKind::Io);
    writer.write(&Stamped::now(&step(3))).unwrap();
    let lines: Vec<String> = fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(read_events(&path).unwrap(), [step(1), step(3)]);
}

#[test]
fn does_not_rewrite_an_unchanged_file() {
    use std::os::unix::fs::MetadataExt;
    let (_dir, path, mut writer) = written(&[step(1), step(2)]);
    let inode = fs::metadata(&path).unwrap().ino();
    writer.truncate_after(2, 0).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
}

/// Damaged lines, notes by hand, and events of a later version.
#[test]
fn keeps_and_reports_lines_that_are_not_events() {
    let damaged = line(&step(1)).replace("step", "\u{fffd}");
    let long = "x".repeat(3 * MAX_LINE) + "\n";
    for foreign in [
        "a note\n",
        "{}\n",
        "[1, 2]\n",
        "5\r\n",
        " \n",
        "{\"event\":\"sparkle\",\"step\":9}\n",
        "{\"event\":\"step\",\"step\":9}\n",
        "{\"event\":7}\n",
        "{\"event\":\"step\",}\n",
        "seen: {\"event\":\"step\",\"step\":1} and more\n",
        &damaged,
        &long,
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let shown: String = foreign.chars().take(40).collect();
        let text = |last: &str| format!("{}{foreign}{}{last}", line(&step(1)), line(&step(2)));
        fs::write(&path, text(&(line(&step(3)) + "{\"event\":\"st"))).unwrap();
        assert_eq!(read_events(&path).unwrap(), [step(1), step(2), step(3)], "{shown}");
        let mut writer = MetricsWriter::open(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text(&line(&step(3))), "{shown}");
        let found = writer.truncate_after(2, 0).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text(""), "{shown}");
        let warned = format!(
            "line 2 of {} is not an event known to this version; it is kept and ignored",
            path.display()
        );
        assert_eq!(found.warnings(2, 1, true), [warned], "{shown}");
    }
}

#[test]
fn terminates_an_unterminated_foreign_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics.jsonl");
    let long = "x".repeat(MAX_LINE);
    for (tail, kept) in [("a note", "a note\n"), (long.as_str(), &(long.clone() + "\n")), ("\0\0\0", "")] {
        fs::write(&path, format!("one\n{tail}")).unwrap();
        MetricsWriter::open(&path).unwrap().write(&Stamped::now(&step(1))).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with(&format!("one\n{kept}{{\"event\"")), "{}", tail.len());
        assert_eq!(read_events(&path).unwrap(), [step(1)]);
    }
    fs::write(&path, "one\ntwo\n").unwrap();
    let [warned] =
        &MetricsWriter::open(&path).unwrap().truncate_after(0, 0).unwrap().warnings(0, 1, true)[..]
    else {
        panic!("one line")
    };
    assert!(warned.starts_with("2 lines of ") && warned.contains("the first is line 1;"), "{warned}");
}

#[test]
fn warns_about_missing_lines_before_the_checkpoint() {
    let (_dir, path, mut writer) = written(&[step(10), step(20), end(47, 90)]);
    let mut warnings = |at, every, own| {
        writer.truncate_after(at, 0).unwrap().warnings(at, every, own).pop().unwrap_or_default()
    };
    // Not every step has an event.
    assert_eq!(warnings(29, 10, true), "");
    assert_eq!(warnings(45, 10, false), "", "it comes from elsewhere");
    let warned = format!(
        "{} ends at step 20, but the run resumes at step 45: the lines between are missing",
        path.display()
    );
    assert_eq!(warnings(45, 10, true), warned);
    // Someone removed the file.
    fs::remove_file(&path).unwrap();
    assert!(warnings(45, 10, true).contains("ends at step 0,"));
}

#[test]
fn divergences_stay_and_show_no_steps() {
    let diverged = Event::Divergence(DivergenceEvent {
        step: 8,
        epoch: 1,
        ranks: vec![1],
        by: None,
        tensor: "parameter w".into(),
        digests: Vec::new(),
        agreed: 4,
    });
    let (_dir, path, mut writer) = written(&[step(4), diverged.clone()]);
    let found = writer.truncate_after(4, 1).unwrap();
    assert_eq!(read_events(&path).unwrap(), [step(4), diverged]);
    // The lines of the steps up to 8 are missing.
    assert_eq!(found.warnings(8, 4, true).len(), 1);
}
