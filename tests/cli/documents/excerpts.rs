//! Specs in documents resolve, and code in them is that of the example that CI builds.

use super::markdown::Document;
use super::{documents, read};
use ddp_run::Registry;
use ddp_run::testing::{JobTree, Plan, WorldRequest};
use std::collections::BTreeMap;

fn blocks(language: &str) -> Vec<(String, String)> {
    let all = documents().into_iter().flat_map(|document| {
        let blocks = Document::parse(&read(&document)).blocks;
        blocks.into_iter().map(move |block| (document.clone(), block))
    });
    all.filter(|(_, block)| block.language == language).map(|(d, block)| (d, block.text)).collect()
}

#[test]
fn every_whole_spec_resolves() {
    let mut specs = 0;
    for (document, text) in blocks("toml") {
        let whole = text.starts_with("name =") && text.lines().any(|line| line == "[model]");
        if whole {
            specs += 1;
            let tree = JobTree::parse(&document, &text, &[]);
            let plan = Plan::resolve(&tree, &Registry::standard(), WorldRequest::new(2));
            plan.unwrap_or_else(|problems| panic!("{problems}"));
        }
    }
    assert!(specs > 0, "README.md has a spec");
}

#[test]
fn the_code_of_the_documents_is_that_of_the_example() {
    let names = ["mynet", "segmentation", "contrastive", "detection", "sequences", "learner"];
    let mut examples = names.map(|name| read(&format!("examples/{name}/main.rs"))).to_vec();
    examples.push(read("src/cli/init/custom/src/main.rs"));
    let mut specs = names.map(|name| read(&format!("examples/{name}/{name}.toml"))).to_vec();
    let others = ["transform", "optimizer", "schedule", "hook", "webhook"];
    specs.extend(others.map(|name| read(&format!("examples/mynet/{name}.toml"))));
    specs.push(read("src/cli/init/custom/job.toml"));
    let excerpts = blocks("rust").into_iter().filter(|(document, _)| document == "docs/extending.md");
    let excerpts: Vec<(String, String)> = excerpts.collect();
    assert!(excerpts.len() >= 4, "{excerpts:?}");
    for (_, code) in excerpts {
        let there = examples.iter().any(|example| example.contains(&code));
        assert!(there, "no main.rs in examples/ has this part of docs/extending.md:\n{code}");
    }
    let parts = blocks("toml")
        .into_iter()
        .filter(|(document, text)| document == "docs/extending.md" && !text.starts_with("[package]"));
    let parts: Vec<(String, String)> = parts.collect();
    assert!(parts.len() >= 7, "{parts:?}");
    for (document, text) in parts {
        let there = specs.iter().any(|spec| spec.contains(&text));
        assert!(there, "no spec in examples/ has this part of {document}:\n{text}");
    }
}

/// Before anything else, docs/extending.md has each file of the smallest crate as `ddp-run init custom` writes it and `tests/cli/init.rs` builds it.
#[test]
fn the_first_files_of_the_documents_are_whole() {
    let of = |language: &str| -> Vec<String> {
        let all = blocks(language).into_iter().filter(|(document, _)| document == "docs/extending.md");
        all.map(|(_, text)| text).collect()
    };
    let program = read("src/cli/init/custom/src/main.rs");
    let (program, tests) = program.split_once("\n#[cfg(test)]\n").expect("the template has tests");
    assert!(program.contains("fn main()") && tests.starts_with("mod tests {"));
    assert_eq!(
        of("rust")[0],
        program,
        "the first program of docs/extending.md (left), the template's (right)"
    );
    let files = of("toml");
    assert!(files[0].starts_with("[package]"), "the first file is the manifest: {}", files[0]);
    assert_eq!(files[1], read("src/cli/init/custom/job.toml"));
}

/// A crate of one's own must have the Burn that ddp-run has.
#[test]
fn the_manifest_of_the_documents_names_the_versions_of_ours() {
    let dependencies = |text: &str| {
        let manifest: toml::Table = text.parse().expect("TOML");
        manifest.get("dependencies").and_then(|d| d.as_table()).cloned().unwrap_or_default()
    };
    let ours: toml::Table = read("Cargo.toml").parse().expect("TOML");
    let shared = ours["workspace"]["dependencies"].as_table().expect("a table");
    let own = ours["dependencies"].as_table().expect("a table");
    // A dependency of several crates has its version in the workspace.
    let ours: toml::Table =
        own.iter().map(|(name, of)| (name.clone(), shared.get(name).unwrap_or(of).clone())).collect();
    let manifest = blocks("toml").into_iter().find(|(_, text)| text.starts_with("[package]"));
    let theirs = dependencies(&manifest.expect("docs/extending.md has a manifest").1);
    let version = |of: &toml::Table, name: &str| of[name].get("version").cloned();
    for name in theirs.keys().filter(|name| *name != "ddp-run") {
        assert_eq!(version(&theirs, name), version(&ours, name), "{name}");
    }
    assert_eq!(theirs.len(), 3);
}

/// `ddp-run init custom` writes the manifest of docs/extending.md; what it adds to the profile is ours, so that what ddp-run was built with
/// serves a project in the same target folder. A project without devices has not the dependencies of these, nor those of ddp-run's tests.
#[test]
fn the_manifest_of_the_documents_is_that_of_the_template() {
    let manifest = blocks("toml").into_iter().find(|(_, text)| text.starts_with("[package]"));
    let (_, manifest) = manifest.expect("docs/extending.md has a manifest");
    let template = read("src/cli/init/custom/Cargo.toml.in");
    for line in manifest.lines() {
        assert!(template.lines().any(|other| other == line), "the template has no line `{line}`");
    }
    let profile = |text: &str| {
        let manifest: toml::Table = text.parse().expect("TOML");
        manifest["profile"]["dev"].as_table().cloned().expect("a profile")
    };
    let (ours, theirs) = (profile(&read("Cargo.toml")), profile(&template));
    for (key, value) in theirs.iter().filter(|(key, _)| *key != "package") {
        assert_eq!(ours.get(key), Some(value), "{key}");
    }
    let levels = |profile: &toml::Table| -> BTreeMap<String, Option<i64>> {
        let packages = profile["package"].as_table().expect("packages").iter();
        packages.map(|(name, package)| (name.clone(), package["opt-level"].as_integer())).collect()
    };
    let mut ours = levels(&ours);
    let of_devices = ["burn-optim", "burn-cubecl", "burn-cubecl-fusion", "burn-fusion", "wgpu-hal"];
    let of_tests = ["serde-saphyr", "insta", "annotate-snippets", "encoding_rs"];
    for not_there in of_devices.iter().chain(&of_tests) {
        assert!(ours.remove(*not_there).is_some(), "{not_there}");
    }
    assert_eq!(levels(&theirs), ours);
}
