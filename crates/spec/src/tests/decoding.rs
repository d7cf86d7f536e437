//! Tables read into structs that declare their keys.

use super::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use std::collections::BTreeMap;

/// Keys of every kind, with defaults.
#[derive(Deserialize, JsonSchema, SmartDefault, Debug, PartialEq)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
struct Config {
    #[schemars(extend("x-changes-results" = false))]
    name: String,
    #[default = 3]
    #[schemars(range(max = 9))]
    count: usize,
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    norm: Option<f64>,
    #[default = 0.5]
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    share: f64,
    size: Size,
    #[default([0.9, 0.99])]
    #[schemars(inner(range(min = 0.0)))]
    betas: [f64; 2],
    places: Option<BTreeMap<String, String>>,
    #[serde(rename = "async")]
    #[default = true]
    asynchronous: bool,
    #[default(Period::seconds(60))]
    grace: Period,
    #[schemars(extend("x-expected" = "an IP address"))]
    bind: Option<std::net::IpAddr>,
}

choice! {
    /// How large.
    Size:
    /// Not at all.
    Small = "small",
    /// Very.
    Large = "large",
}

fn config(text: &str) -> (Config, Vec<String>, Vec<String>) {
    let mut made = None;
    let mut inert = Vec::new();
    let result = tree(text, &[]).read(|root| {
        let mut table = root.section("t");
        made = Some(table.config());
        inert = table.all_without_effect().into_iter().collect();
        table.note_resolved("norm", 1.0);
    });
    assert_eq!(inert, ["t.name"]);
    let shown = |v: ResolvedValue| format!("{} = {} ({})", v.key, v.value, v.origin);
    match result {
        Ok((_, values)) => (made.unwrap(), values.into_iter().map(shown).collect(), Vec::new()),
        Err(d) => {
            (made.unwrap(), Vec::new(), d.problems().iter().map(|p| place_and_message(&d, p)).collect())
        }
    }
}

#[test]
fn records_values_in_the_order_of_declaration() {
    let (read, values, problems) = config("[t]\nbetas = [0, 1]\nname = 'x'\nshare = 0\ngrace = '2 min'");
    assert_eq!(problems, [""; 0]);
    assert_eq!(Size::parse("large").map(|size| size.to_string()).as_deref(), Some("large"));
    let expected = Config {
        name: "x".to_owned(),
        share: 0.0,
        betas: [0.0, 1.0],
        grace: Period::seconds(120),
        ..Config::default()
    };
    assert_eq!(read, expected);
    assert_eq!(
        values,
        [
            "t.name = \"x\" (spec)",
            "t.count = 3 (default)",
            "t.norm = 1.0 (default)",
            "t.share = 0.0 (spec)",
            "t.size = \"small\" (default)",
            "t.betas = [0, 1] (spec)",
            "t.async = true (default)",
            "t.grace = \"2 min\" (spec)",
        ]
    );
}

#[test]
fn reports_all_problems_with_the_declared_ranges_and_choices() {
    let text = "[t]\ncount = 10\nnorm = 0\nshare = 1.0\nsize = 'larg'\nbetas = [1, -1.5, 'x']\nplaces = { a = 1 }\n\
                async = 'yes'\ngrace = 'soon'\nbind = 'here'\nnorn = 1";
    let (read, _, problems) = config(text);
    assert_eq!(read, Config::default(), "what is wrong is read as absent");
    assert_eq!(
        problems,
        [
            "job.toml:1:1+3: missing key `name`",
            "job.toml:2:9+2: expected an integer from 0 to 9, found 10",
            "job.toml:3:8+1: expected a number above 0, found 0",
            "job.toml:4:9+3: expected a number of at least 0 and below 1, found 1.0",
            "job.toml:5:8+6: unknown value; did you mean \"large\"?",
            "job.toml:6:13+4: expected a number of at least 0, found -1.5",
            "job.toml:6:19+3: expected a number of at least 0, found the string \"x\"",
            "job.toml:7:16+1: expected a string, found 1",
            "job.toml:8:9+5: expected true or false, found the string \"yes\"",
            "job.toml:9:9+6: expected a number of seconds, or a time such as \"30 s\", \"10 min\" or \"2 h\", above 0 and at most 1e9 s, found the \
             string \"soon\"",
            "job.toml:10:8+6: expected an IP address, found the string \"here\"",
            "job.toml:11:1+4: unknown key; did you mean `norm`?",
        ]
    );
    let one = |line: &str| config(&format!("[t]\nname = 'x'\n{line}")).2;
    assert_eq!(one("size = 3"), ["job.toml:3:8+1: expected \"small\" or \"large\", found 3"]);
    assert_eq!(one("betas = [1]"), ["job.toml:3:9+3: expected 2 numbers, found 1"]);
    assert_eq!(one("betas = 1"), ["job.toml:3:9+1: expected a list of numbers, found 1"]);
    assert_eq!(
        one("places = 1"),
        ["job.toml:3:10+1: expected a table whose values are each a string, found 1"]
    );
    assert_eq!(
        one("share = nan"),
        ["job.toml:3:9+3: expected a number of at least 0 and below 1, found nan"]
    );
}

/// As a user would write it: required keys, nested tables.
#[derive(Deserialize, JsonSchema, Debug, PartialEq)]
struct Mine {
    size: usize,
    #[serde(default)]
    kind: Kind,
    inner: Option<Inner>,
}

#[derive(Deserialize, Serialize, JsonSchema, Debug, PartialEq, Default)]
#[serde(rename_all = "lowercase")]
enum Kind {
    #[default]
    Small,
    Large,
}

#[derive(Deserialize, JsonSchema, Debug, PartialEq)]
struct Inner {
    sizes: Vec<f32>,
}

fn mine<T: serde::de::DeserializeOwned + JsonSchema>(text: &str) -> (Option<T>, Vec<String>) {
    let mut made = None;
    let result = tree(text, &[]).read(|root| {
        let mut model = root.req_section("model");
        model.kind([("m", ())].into_iter());
        made = model.parse();
    });
    let problems = result.err().map(|d| d.problems().iter().map(|p| place_and_message(&d, p)).collect());
    (made, problems.unwrap_or_default())
}

#[test]
fn reads_a_user_type_through_serde_with_exact_positions() {
    let (read, found) = mine("[model]\nname = 'm'\nsize = 3\nkind = 'large'\ninner.sizes = [1, 2.5]");
    let inner = Some(Inner { sizes: vec![1.0, 2.5] });
    assert_eq!((read, found), (Some(Mine { size: 3, kind: Kind::Large, inner }), vec![]));

    let place = |text: &str| mine::<Mine>(&format!("[model]\nname = 'm'\n{text}")).1;
    let number = "an integer of at least 0";
    assert_eq!(place("size = 'x'"), [format!("job.toml:3:8+3: expected {number}, found the string \"x\"")]);
    assert_eq!(place(""), ["job.toml:1:1+7: missing key `size`"]);
    assert_eq!(
        place("size = -1\nkind = 'larg'\nsise = 2\nnam = 1"),
        [
            format!("job.toml:3:8+2: expected {number}, found -1"),
            "job.toml:4:8+6: unknown value; did you mean \"large\"?".to_owned(),
            "job.toml:5:1+4: unknown key; did you mean `size`?".to_owned(),
            "job.toml:6:1+3: unknown key; did you mean `name`?".to_owned(),
        ]
    );
    assert_eq!(place("sise = 2"), ["job.toml:3:1+4: unknown key; did you mean `size`?"]);
    assert_eq!(
        place("size = 1\ninner = { sizes = [1, 'b'], size = 1 }"),
        ["job.toml:4:23+3: expected a number, found the string \"b\""]
    );
    assert_eq!(
        place("size = 1\ninner = { sizes = [], siz = 1 }"),
        ["job.toml:4:23+3: unknown key; did you mean `sizes`?"]
    );
    assert_eq!(place("kind = 1\n[model.inner]").len(), 3, "the size, the kind and the inner sizes");
    assert_eq!(place("size = 1\n[model.inner]"), ["job.toml:4:1+13: missing key `sizes`"]);
}

#[test]
fn a_user_type_may_accept_any_key() {
    type Any = BTreeMap<String, u8>;
    let of = |text: &str| mine::<Any>(&format!("[model]\nname = 'm'\n{text}"));
    assert_eq!(of("a = 1\nb = 2"), (Some(Any::from([("a".into(), 1), ("b".into(), 2)])), vec![]));
    assert_eq!(of("a = 1\nb = 'x'").1, ["job.toml:4:5+3: expected u8, found the string \"x\""]);
}

#[test]
fn keys_that_are_not_set_have_the_values_of_another_file() {
    let read = |text: &str| {
        let from =
            serde_json::json!({ "count": 4, "norm": 2, "size": "large", "other": 1, "betas": [0.5, 0.6] });
        let read = tree(text, &[]).read(|root| {
            let mut table = root.section("t");
            table.inherit(from.as_object().unwrap().clone(), "a/config.json".to_owned());
            assert_eq!(table.inherits_from(), Some("a/config.json"));
            table.config::<Config>()
        });
        let shown = |v: ResolvedValue| format!("{} = {} ({})", v.key, v.value, v.origin);
        match read {
            Ok((config, values)) => Ok((config, values.into_iter().map(shown).collect::<Vec<_>>())),
            Err(d) => Err(d.problems().iter().map(|p| p.message.clone()).collect::<Vec<_>>()),
        }
    };
    let (config, values) = read("[t]\nname = 'x'\nnorm = 2.0\n").unwrap();
    let found = (config.count, config.norm, config.size, config.betas, config.share);
    assert_eq!(found, (4, Some(2.0), Size::Large, [0.5, 0.6], 0.5));
    let from = [
        "t.count = 4 (base a/config.json)",
        "t.norm = 2.0 (spec)",
        "t.size = \"large\" (base a/config.json)",
    ];
    for value in from {
        assert!(values.iter().any(|found| found == value), "{value}: {values:#?}");
    }
    let expected =
        ["contradicts `count = 4` in a/config.json", "contradicts `betas = [0.5, 0.6]` in a/config.json"];
    assert_eq!(read("[t]\nname = 'x'\ncount = 5\nbetas = [0.5, 0.7]\n").unwrap_err(), expected);
}
