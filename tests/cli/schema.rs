//! The JSON Schema of specs as editors apply it: taplo (npm's `@taplo/cli`) accepts every spec in `configs/` and finds what is wrong
//! with others. Whether the schema is current, `tests/cli/documents` checks.

use crate::common::configs;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What taplo says about these files, by the schema that each of them names; `None` without taplo.
fn taplo(files: &[PathBuf]) -> Option<Result<(), String>> {
    let output =
        Command::new("taplo").args(["check", "--colors", "never"]).args(files).current_dir(root()).output();
    match output {
        Ok(output) if output.status.success() => Some(Ok(())),
        Ok(output) => Some(Err(String::from_utf8_lossy(&output.stderr).into_owned())),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            println!("skipped: no taplo (`npm install -g @taplo/cli`)");
            None
        }
        Err(e) => panic!("taplo: {e}"),
    }
}

#[test]
fn every_config_names_the_schema() {
    let specs = configs();
    assert!(specs.len() > 8, "{specs:?}");
    for spec in specs {
        let text = fs::read_to_string(&spec).expect("readable");
        let named = text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("#:schema "))
            .expect("a first line with it");
        let path = spec.parent().expect("a folder").join(named);
        assert!(path.is_file(), "{}: {named}", spec.display());
    }
}

#[test]
fn taplo_accepts_every_config() {
    if let Some(Err(said)) = taplo(&configs()) {
        panic!("{said}");
    }
}

const GOOD: &str = "name = 'x'\nbatch_size = 4\nmodel.name = 'linear'\ndataset = { name = 'csv', path = 'a.csv', target = 'y' }\n\
                    optimizer.name = 'adamw'\n";

#[test]
fn taplo_finds_what_is_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let schema = root().join("schema/ddp-run.schema.json");
    let write = |(name, text): &(&str, String)| {
        let spec = folder.path().join(format!("{name}.toml"));
        fs::write(&spec, format!("#:schema file://{}\n{text}", schema.display())).expect("written");
        spec
    };
    let good = [
        ("whole", GOOD.to_owned()),
        (
            "lists",
            format!("{GOOD}[[scheduler]]\nname = 'warmup'\nsteps = 2\n[[scheduler]]\nname = 'cosine'\n"),
        ),
        ("group", format!("{GOOD}[[optimizer.group]]\nmatch = 'bias'\nweight_decay = 0\n")),
        ("own-syntax", format!("save_every = '500 steps'\n{GOOD}[launch]\nnproc_per_node = 'devices'\n")),
        ("extends", "extends = 'base.toml'\noptimizer.lr = 0.1\n".to_owned()),
        ("extends-component", "extends = 'base.toml'\ndataset.name = 'csv'\n".to_owned()),
    ];
    match taplo(&good.iter().map(write).collect::<Vec<_>>()) {
        None => return,
        Some(said) => assert_eq!(said, Ok(())),
    }
    let wrong = [
        ("unknown-key", format!("epoch = 2\n{GOOD}")),
        ("unknown-table", format!("{GOOD}[trian]\naccumulate = 2\n")),
        ("unknown-name", GOOD.replace("linear", "linaer")),
        ("key-of-another-schedule", format!("{GOOD}[scheduler]\nname = 'step'\nstep_size = 2\nt_0 = 3\n")),
        ("range", GOOD.replace("= 4", "= 0")),
        ("type", GOOD.replace("= 4", "= '4'")),
        ("choice", format!("backend = 'gloom'\n{GOOD}")),
        ("missing", GOOD.replace("batch_size = 4\n", "")),
        ("missing-in-component", GOOD.replace(", target = 'y'", "")),
        ("missing-name", GOOD.replace("model.name = 'linear'", "model.out_features = 2")),
        ("length", format!("{GOOD}optimizer.betas = [0.9]\n")),
        ("exclusive-bound", format!("{GOOD}optimizer.betas = [0.9, 1.0]\n")),
        ("group", format!("{GOOD}[[optimizer.group]]\nmatch = 'bias'\nmomentum = 0.9\n")),
    ];
    let said = taplo(&wrong.iter().map(write).collect::<Vec<_>>()).expect("taplo was there before");
    let said = said.expect_err("all are wrong");
    for (name, text) in wrong {
        assert!(said.contains(&format!("/{name}.toml")), "{name} passes:\n{text}\n{said}");
    }
}
