use super::*;
use crate::samples::{self, append, line};

fn step(step: u64) -> String {
    line(&samples::step(step, 1.0))
}

/// What a look finds: steps, and `anew`.
fn look(tail: &mut Tail) -> Vec<String> {
    let mut found = Vec::new();
    let any = tail.read(|new| {
        found.push(match new {
            PollResult::Anew => "anew".to_owned(),
            PollResult::Event(event, _) => event.step().unwrap().to_string(),
        })
    });
    assert_eq!(any.unwrap(), !found.is_empty());
    found
}

fn empty() -> [String; 0] {
    []
}

#[test]
fn each_look_finds_only_what_is_new() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics.jsonl");
    let mut tail = Tail::new(&path);
    assert_eq!(look(&mut tail), empty(), "there is no file yet");
    append(dir.path(), &(step(1) + &step(2)));
    assert_eq!(look(&mut tail), ["1", "2"]);
    assert_eq!(look(&mut tail), empty());
    append(dir.path(), &step(3));
    assert_eq!(look(&mut tail), ["3"]);
    assert_eq!(tail.bytes(), fs::metadata(&path).unwrap().len());
}

#[test]
fn a_line_is_read_when_it_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics.jsonl");
    let mut tail = Tail::new(&path);
    let line = step(1);
    let (first, rest) = line.trim_end().split_at(line.len() / 2);
    append(dir.path(), first);
    assert_eq!(look(&mut tail), empty());
    append(dir.path(), rest);
    assert_eq!(look(&mut tail), empty(), "its newline is missing");
    append(dir.path(), "\n");
    assert_eq!(look(&mut tail), ["1"]);
    // A torn event of a full disk, and the next one behind it; a line of somebody else.
    append(dir.path(), &format!("{first}{}not an event\n{}", step(2), step(3)));
    assert_eq!(look(&mut tail), ["2", "3"]);
}

#[test]
fn a_file_that_is_replaced_cut_or_removed_begins_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics.jsonl");
    let mut tail = Tail::new(&path);
    append(dir.path(), &(step(1) + &step(2) + &step(3)));
    assert_eq!(look(&mut tail).len(), 3);
    // As a resume does it, here with more than there was.
    let next = dir.path().join("next");
    fs::write(&next, step(1) + &step(2) + &step(4) + &step(5)).unwrap();
    fs::rename(&next, &path).unwrap();
    assert_eq!(look(&mut tail), ["anew", "1", "2", "4", "5"]);
    // The same file, cut in place.
    File::options().write(true).open(&path).unwrap().set_len(step(1).len() as u64).unwrap();
    assert_eq!(look(&mut tail), ["anew", "1"]);
    // Cut, and longer than before at the next look.
    append(dir.path(), &step(2));
    assert_eq!(look(&mut tail), ["2"]);
    File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    append(dir.path(), &(step(7) + &step(8) + &step(9)));
    assert_eq!(look(&mut tail), ["anew", "7", "8", "9"]);
    fs::remove_file(&path).unwrap();
    assert_eq!(look(&mut tail), ["anew"]);
    assert_eq!(look(&mut tail), empty());
}

#[test]
fn a_line_that_is_too_long_is_passed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics.jsonl");
    let mut tail = Tail::new(&path);
    append(dir.path(), &"x".repeat(2 * MAX_LINE + 5));
    assert_eq!(look(&mut tail), empty());
    append(dir.path(), &(step(1) + &step(2)));
    assert_eq!(look(&mut tail), ["2"], "the first is the end of the long line");
}
