//! The module's public interface: trees from texts and files, and the positions of problems.

use super::diagnostics::Problem;
use super::*;
use proptest::prelude::*;
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;

mod decoding;
mod edits;
mod files;
mod large;

fn tree(text: &str, edits: &[Override]) -> JobTree {
    JobTree::parse("job.toml", text, edits)
}

fn set(text: &str) -> Override {
    Override::Set(text.to_owned())
}

fn unset(text: &str) -> Override {
    Override::Unset(text.to_owned())
}

#[derive(Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
struct Root {
    #[default = 5]
    #[schemars(range(min = 1, max = 9))]
    a: u64,
}

#[derive(Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
struct T {
    #[default = 0.5]
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    x: f64,
    #[default = "why"]
    y: String,
}

#[derive(Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("required" = ["z"]))]
struct Item {
    #[schemars(range(min = 1))]
    z: usize,
}

/// Reads a little job of root `a`, table `t` with `x`, `y`, and list `l` of tables with `z`.
fn read_little(root: &mut Fields<'_>) -> (u64, f64, String, Vec<usize>) {
    let Root { a } = root.config();
    let T { x, y } = root.section("t").config();
    let mut z = Vec::new();
    root.tables("l", &mut |item, _| z.push(item.config::<Item>().z));
    (a, x, y, z)
}

fn problems(text: &str, edits: &[Override]) -> Vec<String> {
    match tree(text, edits).read(read_little) {
        Ok(_) => Vec::new(),
        Err(d) => d.problems().iter().map(|p| place_and_message(&d, p)).collect(),
    }
}

fn place_and_message(d: &Diagnostics, p: &Problem) -> String {
    let (source, line, column) = d.place(p);
    format!("{source}:{line}:{column}+{}: {}", p.span.end - p.span.start, p.message)
}

fn values(text: &str, edits: &[Override]) -> Vec<String> {
    let (_, values) = tree(text, edits).read(read_little).expect("no problems");
    values.iter().map(|v| format!("{} = {} ({})", v.key, v.value, v.origin)).collect()
}

#[test]
fn records_values_with_their_origins() {
    assert_eq!(
        values("a = 2\n[t]\nx = 0", &[set("t.y=because")]),
        ["a = 2 (spec)", "t.x = 0.0 (spec)", "t.y = \"because\" (--set)"]
    );
    let given = |from: &str, key: &'static str, value: &str| {
        let (from, typed, toml) = (from.to_owned(), value.to_owned(), value.to_owned());
        Override::Given(Given { from, typed, key, toml })
    };
    let edits = [given("--flag", "a", "3"), given("SOME_VARIABLE", "t.x", "0.25")];
    assert_eq!(
        values("a = 2", &edits),
        ["a = 3 (--flag)", "t.x = 0.25 (SOME_VARIABLE)", "t.y = \"why\" (default)"]
    );
    assert_eq!(
        problems("", &[given("SOME_VARIABLE", "a", "99")])[0].split(": ").next(),
        Some("SOME_VARIABLE:1:15+2")
    );
    let shown =
        tree("", &[given("SOME_VARIABLE", "a", "99")]).read(read_little).expect_err("too large").to_string();
    assert!(shown.contains("1 problem in the environment\n  --> SOME_VARIABLE, column 15"), "{shown}");
    assert_eq!(values("", &[]), ["a = 5 (default)", "t.x = 0.5 (default)", "t.y = \"why\" (default)"]);
    assert_eq!(values("l = [{z = 1}, {z = 2}]", &[])[3..], ["l.0.z = 1 (spec)", "l.1.z = 2 (spec)"]);
    assert_eq!(values("[l]\nz = 7", &[])[3..], ["l.z = 7 (spec)"]);
}

#[test]
fn reports_every_problem_at_its_position() {
    let text = "a = 10\nt.x = \"é\" # dotted\nt.yy = 1\n[[l]]\n[[l]]\nz = 0\nq = {}\n";
    assert_eq!(
        problems(text, &[]),
        [
            "job.toml:1:5+2: expected an integer from 1 to 9, found 10",
            "job.toml:2:7+4: expected a number of at least 0 and below 1, found the string \"é\"",
            "job.toml:3:3+2: unknown key; did you mean `y`?",
            "job.toml:4:1+5: missing key `z`",
            "job.toml:6:5+1: expected an integer of at least 1, found 0",
            "job.toml:7:1+1: unknown key; only `z` is known here",
        ]
    );
}

#[test]
fn inline_tables_keep_exact_positions() {
    assert_eq!(
        problems("t = { x = 0.1, 'é' = 2, y = [\"s\"] }\nl = 3\n", &[]),
        [
            "job.toml:1:16+4: unknown key; known here: `x`, `y`",
            "job.toml:1:29+5: expected a string, found a list",
            "job.toml:2:5+1: expected a table, `[l]` or `[[l]]`, found 3",
        ]
    );
}

#[test]
fn columns_count_characters_and_ignore_a_byte_order_mark() {
    assert_eq!(problems("\u{feff}aa = 1", &[])[0], "job.toml:1:1+2: unknown key; did you mean `a`?");
    assert_eq!(
        problems("t = { y = '日本', b = 1 }", &[])[0],
        "job.toml:1:17+1: unknown key; known here: `x`, `y`"
    );
}

#[test]
fn names_the_table_of_a_key_in_a_list_of_tables() {
    let found = problems("[[l]]\nz = 1\ny = ''", &[]);
    assert_eq!(found, ["job.toml:3:1+1: unknown key here; it belongs in `[t]`"]);
}

#[test]
fn reports_syntax_errors_with_all_other_problems() {
    let text = "a 3\n= 1\n[t]\nx = \"\ny = yes\nz = 1\n[[l]\nz = 1\n[s]\n";
    let found = problems(text, &[]);
    let starts: Vec<&str> = found.iter().filter_map(|p| p.split('+').next()).collect();
    let expected = ["1:3", "2:1", "4:6", "5:5", "6:1", "7:5", "9:2"].map(|at| format!("job.toml:{at}"));
    assert_eq!(starts, expected, "{found:#?}");
}

#[test]
fn ignores_text_inside_an_unclosed_bracket() {
    assert_eq!(
        problems("b = 1\nl = [\n{ z = 1 },\nq = 3\n[t]\nx = true\n", &[]),
        [
            "job.toml:1:1+1: unknown key; known here: `a`, `extends`, `l`, `t`",
            "job.toml:2:5+1: this `[` is never closed",
        ]
    );
}

#[test]
fn reports_duplicates_and_keeps_the_first() {
    assert_eq!(
        problems("a = 1\na = 20\n[t]\n[t]\nx = 2", &[]),
        [
            "job.toml:2:1+1: duplicate key: `a` is set above already",
            "job.toml:4:2+1: duplicate key: `t` is set above already",
            "job.toml:5:5+1: expected a number of at least 0 and below 1, found 2",
        ]
    );
}

#[test]
fn rejects_numbers_that_overflow() {
    let found = problems("[t]\nx = 1e999", &[]);
    assert_eq!(found, ["job.toml:2:5+5: number out of range: it must fit a 64-bit float"]);
}

#[test]
fn a_long_dotted_key_does_not_overflow_the_stack() {
    let found = problems(&format!("{}b = 1", "a.".repeat(100_000)), &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(!problems(&format!("a = {}", "[".repeat(100_000)), &[]).is_empty());
    assert!(!problems(&"[a.b]\n".repeat(1000), &[]).is_empty());
    assert!(!problems(&"x y\n".repeat(2000), &[]).is_empty());
}

#[test]
fn colour_marks_the_same_text() {
    let d = tree("b = 1", &[]).read(read_little).expect_err("a problem");
    let (plain, coloured) = (d.render(false), d.render(true));
    assert!(coloured.contains("\x1b[1m\x1b[31m^\x1b[0m"), "{coloured:?}");
    let mut stripped = coloured;
    for code in ["\x1b[1m", "\x1b[31m", "\x1b[34m", "\x1b[36m", "\x1b[0m"] {
        stripped = stripped.replace(code, "");
    }
    assert_eq!(stripped, plain);
}

#[test]
fn aligns_carets_under_wide_characters_and_tabs() {
    let d = tree("\tt = { y = '日本☕', b = 1 }", &[]).read(read_little).expect_err("a problem");
    let text = d.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[2], "    1 |     t = { y = '日本☕', b = 1 }");
    // Two ideographs take four columns, a symbol displayed as an emoji two.
    assert_eq!(lines[3], format!("      | {}^ unknown key; known here: `x`, `y`", " ".repeat(4 + 20)));
}

/// Fragments of broken specs.
fn fragment() -> impl Strategy<Value = String> {
    let pieces = [
        "a", "t", "l", "z", "extends", "=", " = ", "\n", "[", "]", "[[", "]]", "{", "}", ",", ".", "\"", "'",
        "\"\"\"", "'''", "#", "é", "日本", "\u{feff}", "\t", "\r\n", "1", "-", "1e9", "0x", "inf", "nan",
        "true", "\\u12", " ",
    ];
    prop_oneof![
        4 => proptest::sample::select(pieces.to_vec()).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
        1 => Just("1979-05-27".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_text_gives_problems_in_range_and_never_a_panic(
        pieces in proptest::collection::vec(fragment(), 0..40),
        edit in proptest::collection::vec(fragment(), 0..6),
    ) {
        let tree = tree(&pieces.concat(), &[set(&edit.concat()), unset(&edit.concat())]);
        if let Err(d) = tree.read(read_little) {
            prop_assert!(!d.problems().is_empty());
            for p in d.problems() {
                let text = &tree.sources[p.span.source].text;
                prop_assert!(p.span.start <= p.span.end && p.span.end <= text.len(), "{:?} in {:?}", p, text);
                prop_assert!(text.is_char_boundary(p.span.start) && text.is_char_boundary(p.span.end));
            }
            prop_assert!(!d.render(true).is_empty());
        }
    }
}
