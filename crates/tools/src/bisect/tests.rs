use super::known::{Known, Window};
use super::side::{Leg, Side};
use super::*;
use crate::repro::{History, HistoryPart, Unknown};
use checkpoint::Entry;
use record::{Digest, DigestGroup, DigestLine, DigestWriter, Digests};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The digests of these lines, in a file that has no name.
fn digests_of(lines: &[DigestLine]) -> Digests {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = DigestWriter::open(dir.path(), 0).unwrap();
    lines.iter().for_each(|line| writer.write(line).unwrap());
    Digests::read(dir.path()).unwrap()
}

fn line(step: u64, gradient: u128, parameter: u128) -> DigestLine {
    let mut line = DigestLine::new(step, 0, 1);
    line.add(DigestGroup::Gradient, "fc.weight", Digest(gradient));
    line.add(DigestGroup::Parameter, "fc.weight", Digest(parameter));
    line
}

fn side(name: &str, lines: &[DigestLine], last_step: u64) -> Side {
    Side {
        folder: PathBuf::from(name),
        job_toml: String::new(),
        values: BTreeMap::default(),
        digests: digests_of(lines),
        checkpoints: Vec::new(),
        world: 1,
        last_step,
        history: History {
            parts: vec![HistoryPart { from: 0, world: 1, at_epoch_end: false, spec: 0 }],
            ..History::default()
        },
    }
}

fn saved(mut side: Side, steps: &[u64]) -> Side {
    let entry = |step: &u64| Entry { step: *step, path: side.folder.join(step.to_string()) };
    side.checkpoints = steps.iter().map(entry).collect();
    side
}

#[test]
fn the_window_is_between_what_is_known() {
    let window = |same: &[(u64, bool)], digested: &[u64], until| Known::with(same, digested).window(until);
    let differs = |equal, last, digested| Some(Window { equal, last, differs: true, digested });
    assert_eq!(
        window(&[(2, true), (4, true), (6, false), (8, true)], &[2, 6], None),
        differs(Some(4), 6, true)
    );
    assert_eq!(window(&[(6, false)], &[], None), differs(None, 6, false));
    assert_eq!(window(&[(2, true)], &[2], None), None);
    // More is looked at where that is asked for.
    let asked = window(&[(2, true)], &[2], Some(5)).unwrap();
    assert_eq!((asked.equal, asked.last, asked.differs), (Some(2), 5, false));
    assert_eq!(window(&[(9, true)], &[9], Some(5)), None);
    let exact = |window: Option<Window>| window.unwrap().is_exact();
    assert!(exact(differs(Some(4), 5, true)) && exact(differs(None, 1, true)));
    assert!(!exact(differs(Some(4), 6, true)) && !exact(differs(Some(4), 5, false)) && !exact(Some(asked)));
}

#[test]
fn a_replay_begins_at_a_checkpoint_where_both_are_the_same() {
    let known = Known::with(&[(2, true), (4, true), (6, false)], &[2, 4, 6]);
    let from = |a: &[u64], b: &[u64], equal| {
        let sides = [saved(side("a", &[], 6), a), saved(side("b", &[], 6), b)];
        known.common_checkpoint(&sides, equal).unwrap().map(|entry| entry.path)
    };
    assert_eq!(from(&[2, 4, 6], &[2, 4, 6], Some(4)), Some(PathBuf::from("a/4")));
    // One of the two runs has it: their states are the same there.
    assert_eq!(from(&[2], &[4], Some(4)), Some(PathBuf::from("b/4")));
    assert_eq!(from(&[6], &[3], Some(4)), None);
    let mut began = side("b", &[], 6);
    began.history.origin = Some("elsewhere/step-00000009".into());
    let error = known.common_checkpoint(&[side("a", &[], 6), began], Some(4)).unwrap_err();
    assert!(
        error
            .message
            .contains("b did not begin with the first step, but with elsewhere/step-00000009, which is gone"),
        "{error}"
    );
}

#[test]
fn digests_tell_the_step_and_the_tensor() {
    let sides =
        [side("a", &[line(1, 1, 1), line(2, 2, 2)], 2), side("b", &[line(1, 1, 1), line(2, 2, 3)], 2)];
    let known = Known::new(&sides);
    let window = known.window(None).unwrap();
    assert!(window.is_exact() && window.equal == Some(1));
    let tensors = recorded(&sides, 2).unwrap();
    assert_eq!((tensors[0].group, tensors[0].name.as_str()), (DigestGroup::Parameter, "fc.weight"));
}

#[test]
fn replays_tell_the_first_step() {
    let sides = [side("a", &[line(4, 4, 4)], 4), side("b", &[line(4, 9, 9)], 4)];
    let window = Known::new(&sides).window(None).unwrap();
    let of = [
        digests_of(&[line(1, 1, 1), line(2, 2, 2), line(3, 3, 3), line(4, 4, 4)]),
        digests_of(&[line(1, 1, 1), line(2, 2, 2), line(3, 8, 8), line(4, 9, 9)]),
    ];
    let mut findings = Findings::new(&sides, Vec::new());
    judge(&mut findings, &sides, window, Replays { from: 0, of }).unwrap();
    let json = findings.json();
    assert_eq!(
        (&json["result"], &json["step"], &json["equal_until"]),
        (&"differ".into(), &3.into(), &2.into())
    );
    assert_eq!((&json["tensor"]["group"], &json["replayed_from"]), (&"gradient".into(), &0.into()));
    let text = findings.text();
    assert!(text.starts_with("a and b differ from step 3 on: gradient `fc.weight` first\n"), "{text}");
}

/// B was resumed with another spec, and only the last one is known, so that its replay differs too early.
#[test]
fn replays_that_are_not_the_runs_tell_nothing_of_them() {
    let mut sides =
        [side("a", &[line(2, 2, 2), line(4, 4, 4)], 4), side("b", &[line(2, 2, 2), line(4, 9, 9)], 4)];
    let window = Known::new(&sides).window(None).unwrap();
    let of = [
        digests_of(&[line(1, 1, 1), line(2, 2, 2), line(3, 3, 3), line(4, 4, 4)]),
        digests_of(&[line(1, 7, 7), line(2, 7, 8), line(3, 8, 8), line(4, 9, 8)]),
    ];
    let why = "it had another spec".to_owned();
    sides[1].history.unknown = vec![Unknown { from: 0, to: Some(2), why }];
    let mut findings = Findings::new(&sides, Vec::new());
    findings.equal_until = window.equal;
    judge(&mut findings, &sides, window, Replays { from: 0, of }).unwrap();
    assert!(findings.text().contains("b: it had another spec"), "{}", findings.text());
    let json = findings.json();
    assert_eq!((&json["step"], &json["exact"], &json["equal_until"]), (&4.into(), &false.into(), &2.into()));
    assert_eq!((&json["replays_differ"]["step"], &json["unlike_replay"]["b"]), (&1.into(), &2.into()));
    let text = findings.text();
    assert!(text.starts_with("a and b differ in a step after step 2 and up to step 4: gradient"), "{text}");
}

#[test]
fn a_replay_has_the_numbers_of_ranks_and_the_specs_that_the_run_had() {
    let mut run = side("a", &[], 9);
    let part = |from, world, spec| HistoryPart { from, world, at_epoch_end: false, spec };
    run.history.parts = vec![part(0, 2, 0), part(4, 3, 0), part(6, 1, 1)];
    let leg = |leg: Leg| (leg.last, leg.world, leg.spec);
    let legs = |first, last| run.legs(first, last).into_iter().map(leg).collect::<Vec<_>>();
    assert_eq!(legs(0, 9), [(4, 2, 0), (6, 3, 0), (9, 1, 1)]);
    assert_eq!(legs(4, 6), [(6, 3, 0)]);
    assert_eq!(legs(2, 5), [(4, 2, 0), (5, 3, 0)]);
    assert_eq!(legs(7, 8), [(8, 1, 1)]);
}

#[test]
fn a_tensor_of_one_run_only_is_said_to_be_one() {
    let mut other = line(1, 1, 1);
    other.add(DigestGroup::Average, "fc.weight", Digest(1));
    let sides = [side("a", &[line(1, 1, 1)], 1), side("b", &[other], 1)];
    let mut findings = Findings::new(&sides, Vec::new());
    findings.outcome = Comparison::Differ { step: 1, exact: true };
    findings.tensors = recorded(&sides, 1).unwrap();
    assert!(
        findings.text().contains("averaged weight `fc.weight` (only b has it) first"),
        "{}",
        findings.text()
    );
}

#[test]
fn a_difference_that_is_not_repeated_is_no_part_of_the_specs() {
    let sides = [side("a", &[line(4, 4, 4)], 4), side("b", &[line(4, 4, 9)], 4)];
    let window = Known::new(&sides).window(None).unwrap();
    let replay = || digests_of(&[line(3, 3, 3), line(4, 4, 4)]);
    let mut findings = Findings::new(&sides, Vec::new());
    judge(&mut findings, &sides, window, Replays { from: 2, of: [replay(), replay()] }).unwrap();
    let json = findings.json();
    assert_eq!((&json["result"], &json["step"]), (&"unrepeatable".into(), &4.into()));
    // The replay is that of A.
    assert_eq!(
        (&json["unlike_replay"]["a"], &json["unlike_replay"]["b"]),
        (&serde_json::Value::Null, &4.into())
    );
    assert_eq!(json["tensor"]["group"], "parameter");
    assert!(!findings.is_identical());
}

#[test]
fn runs_without_a_difference_are_the_same_as_far_as_is_known() {
    let sides = [side("a", &[line(2, 1, 1)], 5), side("b", &[line(2, 1, 1)], 3)];
    let known = Known::new(&sides);
    let mut findings = Findings::new(&sides, Vec::new());
    findings.outcome = same(&sides, &known).unwrap();
    assert!(findings.is_identical());
    let text = findings.text();
    assert!(
        text.starts_with("a and b are the same up to step 2\n") && text.contains("`--until 3`"),
        "{text}"
    );
    let nothing = [side("a", &[line(2, 1, 1)], 5), side("b", &[], 3)];
    let error = same(&nothing, &Known::new(&nothing)).unwrap_err();
    assert!(error.message.contains("neither digests of the same step nor checkpoints"), "{error}");
}

#[test]
fn runs_that_end_before_the_step_that_is_asked_for_are_compared_up_to_their_end() {
    let nothing = || [digests_of(&[]), digests_of(&[])];
    let sides = ["a", "b"].map(|name| side(name, &[line(2, 1, 1)], 2));
    let window = Known::new(&sides).window(Some(9)).unwrap();
    let mut findings = Findings::new(&sides, Vec::new());
    judge(&mut findings, &sides, window, Replays { from: 2, of: nothing() }).unwrap();
    assert_eq!(
        (&findings.json()["result"], &findings.json()["equal_until"]),
        (&"identical".into(), &2.into())
    );
    // Here their records tell of steps that their specs do not have.
    let sides = [side("a", &[line(4, 4, 4)], 4), side("b", &[line(4, 9, 9)], 4)];
    let window = Known::new(&sides).window(None).unwrap();
    let error = judge(&mut findings, &sides, window, Replays { from: 0, of: nothing() }).unwrap_err();
    assert_eq!(error.message, "a has no step between 0 and 4: its spec ends before");
}
