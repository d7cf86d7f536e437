use super::*;

fn line(step: u64, weight: u128) -> DigestLine {
    let mut line = DigestLine::new(step, 0, 2);
    line.add(DigestGroup::Parameter, "fc.weight", Digest(weight));
    line.add(DigestGroup::Gradient, "fc.weight", Digest(7));
    line.add(DigestGroup::Gradient, "fc.bias", Digest(8));
    line
}

#[test]
fn digests_are_those_of_xxh3() {
    // The values of the reference implementation for no bytes.
    assert_eq!(Digest::new(b"").to_string(), "99aa06d3014798d86001c324468d497f");
    assert_ne!(Digest::seeded(b"ab", 1), Digest::seeded(b"ab", 2));
    assert_ne!(Digest::of_all([Digest(1), Digest(2)]), Digest::of_all([Digest(2), Digest(1)]));
}

#[test]
fn a_line_has_the_documented_format() {
    let zeros = "0".repeat(31);
    let text = format!(
        r#"{{"step":3,"epoch":0,"world":2,"gradient":{{"fc.weight":"{zeros}7","fc.bias":"{zeros}8"}},"parameter":{{"fc.weight":"{zeros}1"}}}}"#
    );
    assert_eq!(serde_json::to_string(&line(3, 1)).unwrap(), text);
    assert_eq!(serde_json::from_str::<DigestLine>(&text).unwrap(), line(3, 1));
}

#[test]
fn what_differs_first_is_the_first_cause() {
    let (a, mut b) = (line(3, 1), line(3, 2));
    assert_eq!(a.differences(&a), []);
    b.add(DigestGroup::Gradient, "fc.bias", Digest(9));
    b.add(DigestGroup::Optimizer, "exp_avg.fc.bias", Digest(1));
    let found: Vec<_> = a.differences(&b).into_iter().map(|it| (it.group.name(), it.name)).collect();
    let expected = [("gradient", "fc.bias"), ("optimizer", "exp_avg.fc.bias"), ("parameter", "fc.weight")];
    assert_eq!(found, expected.map(|(group, name)| (group, name.to_owned())));
}

#[test]
fn lines_are_compared_without_being_kept() {
    let of = |lines: &[DigestLine]| {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = DigestWriter::open(dir.path(), 0).unwrap();
        lines.iter().for_each(|line| writer.write(line).unwrap());
        Digests::read(dir.path()).unwrap()
    };
    let (a, b) = (of(&[line(2, 1), line(4, 2), line(9, 3)]), of(&[line(2, 1), line(4, 3)]));
    assert_eq!(a.in_common(&b).collect::<Vec<_>>(), [(2, true), (4, false)]);
    assert_eq!((a.first_difference(&b, 9), a.first_difference(&b, 3)), (Some(4), None));
    let found = a.differences(&b, 4).unwrap();
    assert_eq!((found.len(), found[0].name.as_str()), (1, "fc.weight"));
    assert_eq!((a.differences(&b, 2).unwrap(), a.differences(&b, 9).unwrap()), (vec![], vec![]));
    assert_eq!((a.last_step(), a.within(3..=4).last_step()), (Some(9), Some(4)));
    // The order of the names is no difference, and the same bits in another group are one.
    let (mut c, mut d) = (DigestLine::new(1, 0, 2), DigestLine::new(1, 0, 2));
    for (name, digest) in [("a", 1), ("b", 2)] {
        c.add(DigestGroup::Gradient, name, Digest(digest));
    }
    for (name, digest) in [("b", 2), ("a", 1)] {
        d.add(DigestGroup::Gradient, name, Digest(digest));
    }
    assert_eq!(c.mark(), d.mark());
    let mut other = DigestLine::new(1, 0, 2);
    other.add(DigestGroup::Parameter, "a", Digest(1));
    other.add(DigestGroup::Parameter, "b", Digest(2));
    assert_ne!(c.mark(), other.mark());
}

#[test]
fn lines_after_the_resumed_step_and_torn_ones_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = DigestWriter::open(dir.path(), 0).unwrap();
    (1..=4).for_each(|step| writer.write(&line(step, step.into())).unwrap());
    writer.lines.file.write_all(b"{\"step\":5,\"epo").unwrap();
    drop(writer);
    let mut writer = DigestWriter::open(dir.path(), 2).unwrap();
    writer.write(&line(3, 33)).unwrap();
    writer.syncing().unwrap()().unwrap();
    let lines = read_digests(dir.path()).unwrap();
    assert_eq!(lines.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(lines[&3], line(3, 33));
    assert!(read_digests(&dir.path().join("none")).unwrap().is_empty());
}
