//! Every relative link leads to a file of the repository, and to a heading of it where it has an anchor.

use super::markdown::Document;
use super::{documents, read, root};
use std::path::Path;

/// The targets of a line's links. Code is no link.
fn targets(line: &str) -> Vec<String> {
    let text: String = line.split('`').step_by(2).collect();
    let behind = text.split("](").skip(1);
    behind.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()).collect()
}

/// Why `target` in the document at `from` leads nowhere.
fn broken(from: &str, target: &str) -> Option<String> {
    if target.contains("://") {
        return None;
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let folder = Path::new(from).parent().unwrap_or(Path::new(""));
    let path = if path.is_empty() { Path::new(from).to_owned() } else { folder.join(path) };
    if !root().join(&path).exists() {
        return Some(format!("{from}: {target} is not there"));
    }
    let anchor = anchor?;
    let anchors = Document::parse(&read(&path.to_string_lossy())).anchors();
    (!anchors.iter().any(|a| a == anchor)).then(|| format!("{from}: {target} is none of {anchors:?}"))
}

#[test]
fn every_link_leads_somewhere() {
    let (mut wrong, mut links) = (Vec::new(), 0);
    for document in documents() {
        for target in Document::parse(&read(&document)).prose.iter().flat_map(|line| targets(line)) {
            links += 1;
            wrong.extend(broken(&document, &target));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(links > 30, "only {links} links were found");
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let line = "see [a `b`](docs/spec.md#top-level), `[no](x)` and [c](https://x.invalid/y.md)";
    assert_eq!(targets(line), ["docs/spec.md#top-level", "https://x.invalid/y.md"]);
    for (target, good) in [
        ("spec.md#top-level", true),
        ("../jobs/env.sh", true),
        ("#no-such-heading", false),
        ("spec.md#no-such-heading", false),
        ("no-such-file.md", false),
    ] {
        assert_eq!(broken("docs/clusters.md", target).is_none(), good, "{target}");
    }
}
