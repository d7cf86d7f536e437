//! Files of the maximum length that are not specs: nothing is done once per pair of lines (these tests would not end),
//! and the output stays readable.

use super::*;

#[test]
fn counts_all_problems_and_shows_the_first() {
    let text: String = (0..300_000).map(|i| format!("k{i} = 1\n")).collect();
    let found = tree(&text, &[]).read(read_little).expect_err("nobody knows these");
    assert_eq!(found.problems().len(), 300_000);
    let shown = found.to_string();
    assert!(shown.starts_with("error: 300000 problems in job.toml\n"), "{}", &shown[..100]);
    assert_eq!(shown.matches("unknown key").count(), 50);
    assert!(shown.ends_with("  ... and 299950 more"), "{}", &shown[shown.len() - 100..]);
}

#[test]
fn reads_large_bases_and_user_tables() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Own {
        _x: Option<u8>,
    }
    let keys: String = (0..100_000).map(|i| format!("k{i} = 1\n")).collect();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("base.toml"), format!("[t]\n{keys}")).expect("written");
    let path = folder.path().join("job.toml");
    std::fs::write(&path, format!("extends = \"base.toml\"\n[t]\n{keys}")).expect("written");
    let job = JobTree::load(&path, &[]).expect("readable");
    let found = job.read(|root| root.section("t").parse::<Own>().is_some()).expect_err("none is known");
    assert_eq!(found.problems().len(), 100_000);
    assert_eq!(found.problems()[99_999].message, "unknown key");
    assert_eq!(found.problems()[0].message, "unknown key; only `_x` is known here");
}

#[test]
fn reports_many_duplicates_and_numbers_out_of_range() {
    let wrong: String = (0..100_000).map(|i| format!("k{i} = 99999999999999999999\n")).collect();
    // Each is an unknown key as well.
    assert_eq!(problems(&wrong, &[]).len(), 200_000);
    let again: String = "a = 1\n".repeat(100_000);
    assert_eq!(problems(&again, &[]).len(), 99_999);
}

/// Each broken line means one more parse of the rest, but the number is limited for long texts.
#[test]
fn bounds_the_work_on_broken_lines() {
    assert_eq!(problems(&"a 3\n".repeat(90), &[]).len(), 90);
    let headers: String = (1..1500).map(|depth| format!("[{}]\n", ["a"].repeat(depth).join("."))).collect();
    let found = problems(&headers, &[]);
    assert!(found.len() > 1 && found[0].contains("recursion limit"), "{:?}", &found[..1]);
    assert_eq!(parse::rounds(4 << 20), 2);
}

#[test]
fn shows_the_wrong_part_of_a_long_line() {
    let long = format!("l = [{}{{ z = 0 }}]", "{ z = 1 }, ".repeat(100_000));
    let found = tree(&long, &[]).read(read_little).expect_err("zero is wrong").to_string();
    assert!(found.lines().all(|line| line.chars().count() < 400), "{}", found.len());
    assert!(found.contains("--> line 1, column 1100012"), "{}", &found[..200]);
    let lines: Vec<&str> = found.lines().collect();
    let (code, carets) = (lines[2], lines[3]);
    assert_eq!(code.chars().nth(carets.find('^').expect("a caret")), Some('0'), "{code}\n{carets}");
}
