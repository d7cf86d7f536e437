//! What `ddp-run init` writes runs as it is.

use crate::common::*;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// `ddp-run init WORDS`, in `folder`.
fn init(folder: &Path, words: &[&str]) -> Output {
    output_of(ddp_run().arg("init").args(words).current_dir(folder))
}

/// The folder in which Cargo puts the programs of the profile that this test was built with.
fn programs() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_ddp-run")).parent().expect("the binary is in a folder")
}

fn cargo_path() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// `cargo ARGUMENTS` in a project, without the network. Dependencies are not built again: the target folder is that of
/// this test, which Cargo does not lock while tests run, and the project's profiles are those of ddp-run. ddp-run itself
/// and its crates are other packages for Cargo there, with files of their own; they are built without optimisation,
/// which takes a fifth of the time, and without debug information.
fn cargo(project: &Path, arguments: &[&str]) -> Command {
    let name = project.file_name().expect("a name").to_string_lossy();
    let (profile, flag) =
        if programs().ends_with("release") { ("release", Some("--release")) } else { ("dev", None) };
    let mut command = program(Path::new(&cargo_path()));
    command.current_dir(project).args(arguments).args(flag).arg("--offline");
    let members = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let members = std::fs::read_dir(members).expect("the folder of the crates").flatten();
    let crates = members.map(|entry| format!("ddp-run-{}", entry.file_name().display()));
    for package in crates.chain(["ddp-run".to_owned(), name.into_owned()]) {
        for setting in ["opt-level=0", "debug=false"] {
            command.arg("--config").arg(format!("profile.{profile}.package.{package}.{setting}"));
        }
    }
    // As the workspace has it: a machine that has only built the workspace has not read crates.io's entry of it.
    let patch = concat!(env!("CARGO_MANIFEST_DIR"), "/patches/cubecl-llvm");
    command.arg("--config").arg(format!("patch.crates-io.cubecl-llvm.path='{patch}'"));
    // What Cargo tells this test, and how CI builds ddp-run itself.
    let of_this_test = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| of_this_test(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_TERM_COLOR", "never");
    command.env("CARGO_TARGET_DIR", programs().parent().expect("a target folder"));
    command
}

/// The output of a build, which takes minutes where others build too.
fn built(mut cargo: Command) -> Output {
    let child = cargo.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("cargo starts");
    finish_within(RUN_HUNG, child)
}

/// The last evaluation of a run.
fn last_accuracy(out: &Path) -> f64 {
    let last = events(out).into_iter().rfind(|e| e["event"] == "epoch").expect("an epoch");
    last["val"]["accuracy"].as_f64().unwrap_or_else(|| panic!("{last} has no accuracy"))
}

#[test]
fn a_custom_project_trains() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let project = dir.path().join("of-my-own");
    let written = init(dir.path(), &["custom", "of-my-own"]);
    assert_code(&written, 0);
    assert!(stdout(&written).contains("cd of-my-own && cargo run -- job.toml"), "{}", stdout(&written));
    let manifest = std::fs::read_to_string(project.join("Cargo.toml")).unwrap();
    assert!(manifest.contains(env!("CARGO_MANIFEST_DIR")), "{manifest}");
    // A second time nothing is written.
    let again = init(dir.path(), &["custom", "of-my-own"]);
    assert_code(&again, 2);
    assert!(stderr(&again).contains("of-my-own is not empty"), "{}", stderr(&again));

    let own = || program(&example("init_custom"));
    let source = std::fs::read_to_string(project.join("src/main.rs")).unwrap();
    assert!(source == std::fs::read_to_string("src/cli/init/custom/src/main.rs").unwrap());
    assert_code(&output_of(own().current_dir(&project).args(["check", "job.toml"])), 0);
    let out = dir.path().join("run");
    let spec = project.join("job.toml");
    assert_code(&output_of(&mut trains(own(), &spec, &out, &["--set", "epochs=5"])), 0);
    assert!(last_accuracy(&out) > 0.7, "{}", last_accuracy(&out));
    // The standard program does not know the names.
    let unknown = output_of(ddp_run().arg("check").arg(&spec));
    assert_code(&unknown, 78);
    assert!(stderr(&unknown).contains("\"mynet\""), "{}", stderr(&unknown));
}

#[test]
#[ignore = "it builds ddp-run once more, which takes minutes: CI runs it"]
fn a_custom_project_builds_and_passes_its_tests() {
    let _alone = alone();
    // At one place, so that the next run of this test replaces what this one builds; one run at a time.
    let lock = std::fs::File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join("init.lock")).unwrap();
    lock.lock().unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("init");
    let project = folder.join("of-my-own");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let ours = || std::fs::metadata(env!("CARGO_BIN_EXE_ddp-run")).and_then(|meta| meta.modified()).unwrap();
    let before = ours();

    assert_code(&init(&folder, &["custom", "of-my-own"]), 0);
    let tested = built(cargo(&project, &["test"]));
    let said = format!("{}{}", stdout(&tested), stderr(&tested));
    assert_code(&tested, 0);
    for name in ["no_point_is_in_training_and_validation", "the_model_learns", "the_spec_is_valid"] {
        assert!(said.contains(&format!("{name} ... ok")), "{said}");
    }
    assert!(!said.contains("warning"), "{said}");
    assert_code(&built(cargo(&project, &["build"])), 0);
    let mut own = program(&programs().join("of-my-own"));
    assert_code(&output_of(own.current_dir(&project).args(["check", "job.toml"])), 0);
    assert_eq!(before, ours(), "ddp-run was built anew");
    // Whatever the folders above it say.
    let usual = ["fmt", "--check", "--", "--config", "max_width=100,use_small_heuristics=Default"];
    assert_code(&output_of(program(Path::new(&cargo_path())).current_dir(&project).args(usual)), 0);
}

/// `init` with these words, then the run that it proposes, from the same folder.
fn proposed(folder: &Path, words: &[&str], sets: &[&str]) -> (String, PathBuf) {
    let written = init(folder, words);
    assert_code(&written, 0);
    let spec = words.last().expect("the file to write");
    assert_code(&output_of(ddp_run().args(["check", spec]).current_dir(folder)), 0);
    let out = folder.join(format!("run-of-{spec}"));
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    assert_code(&output_of(train_command(Path::new(spec), &out, &sets).current_dir(folder)), 0);
    (std::fs::read_to_string(folder.join(spec)).expect("it was written"), out)
}

#[test]
fn a_table_gets_a_spec_that_learns_from_it() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let row = |r: usize| {
        let (x, kind) = (r as f64 * 0.37 % 5.0, ["a", "b"][r % 2]);
        let class = ["left", "right"][usize::from(x + (r % 2) as f64 > 3.0)];
        format!("{r};{x:.3};{kind};{class};{:.3}\n", 2.0 * x + (r % 2) as f64)
    };
    let rows: String = (0..300).map(row).collect();
    std::fs::write(folder.join("side.csv"), format!("id;x y;kind;class;sum\n{rows}")).unwrap();
    let (spec, out) = proposed(folder, &["csv", "side.csv", "side.toml"], &[]);
    for line in [
        "delimiter = \";\"",
        "target = \"class\" ",
        "task = \"classification\" ",
        "#   \"id\": it numbers the rows",
    ] {
        assert!(spec.contains(line), "{line}: {spec}");
    }
    assert!(last_accuracy(&out) > 0.8, "{}", last_accuracy(&out));

    let sums = format!("id;x y;kind;side;sum\n{rows}").replace("0.370", "");
    std::fs::write(folder.join("sum.csv"), sums).unwrap();
    let (spec, out) = proposed(folder, &["csv", "sum.csv", "sum.toml"], &[]);
    for line in ["target = \"sum\" ", "task = \"regression\" ", "blanks = \"mean\" "] {
        assert!(spec.contains(line), "{line}: {spec}");
    }
    let last = events(&out).into_iter().rfind(|e| e["event"] == "epoch").unwrap();
    assert!(last["val"]["r2"].as_f64().unwrap() > 0.8, "{last}");

    let again = init(folder, &["csv", "sum.csv", "sum.toml"]);
    assert_code(&again, 2);
    assert!(stderr(&again).contains("cannot write sum.toml"), "{}", stderr(&again));
    assert_code(&init(folder, &["csv", "none.csv", "none.toml"]), 78);
    assert!(!folder.join("none.toml").exists());
}

#[test]
fn a_folder_of_images_gets_a_spec_that_trains() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    for (class, grey) in [("dark", 20), ("light", 230)] {
        std::fs::create_dir_all(dir.path().join("pictures").join(class)).unwrap();
        for i in 0..10 {
            let image = image::GrayImage::from_pixel(16, 16 + i, image::Luma([grey + i as u8]));
            image.save(dir.path().join(format!("pictures/{class}/{i}.png"))).unwrap();
        }
    }
    let (spec, out) = proposed(dir.path(), &["image-folder", "pictures", "pictures.toml"], &["epochs=1"]);
    for line in [
        "#   dark: 10\n#   light: 10\n",
        "image_size = 16 ",
        "channels = 1 ",
        "stem = \"cifar\" ",
        "val_split = 0.2 ",
    ] {
        assert!(spec.contains(line), "{line}: {spec}");
    }
    // It was evaluated.
    last_accuracy(&out);
    assert_code(&init(dir.path(), &["image-folder", "none"]), 78);
}

#[test]
fn the_other_templates_pass_check() {
    let dir = tempfile::tempdir().unwrap();
    for words in [
        &[][..],
        &["cifar10", "cifar10.toml"],
        &["mnist", "mnist.toml"],
        &["text", "text.toml"],
        &["./plain"],
    ] {
        let written = init(dir.path(), words);
        assert_code(&written, 0);
        let spec = words.last().copied().unwrap_or("job.toml");
        assert!(
            stdout(&written).starts_with(&format!("wrote {spec}"))
                && stdout(&written).contains(&format!("`ddp-run plan {spec}`")),
            "{}",
            stdout(&written)
        );
        // Editors check it by the schema that the first of them wrote.
        let text = std::fs::read_to_string(dir.path().join(spec)).unwrap();
        assert!(text.starts_with("#:schema ddp-run.schema.json\n"), "{text}");
        assert_eq!(stdout(&written).contains("for editors"), spec == "job.toml");
        let checked = output_of(ddp_run().args(["check", spec]).current_dir(dir.path()));
        assert_code(&checked, 0);
        assert_eq!(stderr(&checked), "");
    }
    let schema = std::fs::read_to_string(dir.path().join("ddp-run.schema.json")).unwrap();
    assert!(schema == std::fs::read_to_string("schema/ddp-run.schema.json").unwrap());
    let unknown = init(dir.path(), &["cifra10"]);
    assert_code(&unknown, 2);
    assert!(
        stderr(&unknown).contains("there is no template `cifra10`; did you mean `cifar10`?"),
        "{}",
        stderr(&unknown)
    );
}
