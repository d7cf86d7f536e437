//! Tables read into a user's own types.

use super::*;

#[derive(serde::Deserialize, Debug, PartialEq)]
struct Mine {
    size: usize,
    #[serde(default)]
    kind: Kind,
    inner: Option<Inner>,
}

#[derive(serde::Deserialize, Debug, PartialEq, Default)]
#[serde(rename_all = "lowercase")]
enum Kind {
    #[default]
    Small,
    Large,
}

#[derive(serde::Deserialize, Debug, PartialEq)]
struct Inner {
    sizes: Vec<f32>,
}

fn mine(text: &str) -> (Option<Mine>, Vec<String>) {
    let mut made = None;
    let result = tree(text, &[]).read(|root| {
        let mut model = root.req_section("model");
        model.req_str("name");
        made = model.parse();
    });
    let problems = result.err().map(|d| d.problems().iter().map(|p| place_and_message(&d, p)).collect());
    (made, problems.unwrap_or_default())
}

#[test]
fn a_users_type_is_read_through_serde_with_exact_places() {
    let (read, found) = mine("[model]\nname = 'm'\nsize = 3\nkind = 'large'\ninner.sizes = [1, 2.5]");
    let inner = Some(Inner { sizes: vec![1.0, 2.5] });
    assert_eq!((read, found), (Some(Mine { size: 3, kind: Kind::Large, inner }), vec![]));

    let place = |text: &str| mine(&format!("[model]\nname = 'm'\n{text}")).1;
    assert_eq!(place("size = 'x'"), ["job.toml:3:8+3: expected usize, found string \"x\""]);
    assert_eq!(place(""), ["job.toml:1:1+7: missing key `size`"]);
    assert_eq!(
        place("size = 1\nsise = 2\nnam = 1"),
        [
            "job.toml:4:1+4: unknown key; did you mean `size`?",
            "job.toml:5:1+3: unknown key; did you mean `name`?",
        ]
    );
    assert_eq!(place("size = 1\nkind = 'larg'"), ["job.toml:4:8+6: unknown value; did you mean `large`?"]);
    assert_eq!(
        place("size = 1\ninner = { sizes = [1, 'b'], size = 1 }"),
        ["job.toml:4:23+3: expected f32, found string \"b\"",]
    );
    assert_eq!(
        place("size = 1\ninner = { sizes = [], siz = 1 }"),
        ["job.toml:4:23+3: unknown key; did you mean `sizes`?",]
    );
    assert_eq!(place("size = 1\n[model.inner]"), ["job.toml:4:1+13: missing key `sizes`"]);
}
