//! `ddp-run init custom`: a Cargo project, a program that is ddp-run with a user-defined model and data set.

use super::{quoted, write_new};
use base::error::{Error, Result};
use std::path::{Path, PathBuf};

/// A Cargo project: a user-defined model and data set, a spec and a test
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The folder to write; it must be empty or not exist
    #[arg(value_name = "DIR", default_value = DEFAULT)]
    pub dir: PathBuf,
}

/// The name of the project in the files below, and of its folder where none is given.
const DEFAULT: &str = "my-job";
/// How the manifest below says where ddp-run is.
const DEPENDENCY: &str = "ddp-run = { path = \"../ddp-run\" }";
pub(super) const MANIFEST: &str = include_str!("custom/Cargo.toml.in");
const FILES: [(&str, &str); 5] = [
    ("Cargo.toml", MANIFEST),
    ("src/main.rs", include_str!("custom/src/main.rs")),
    ("tests/job.rs", include_str!("custom/tests/job.rs")),
    ("job.toml", include_str!("custom/job.toml")),
    (".gitignore", include_str!("custom/gitignore")),
];
/// The source tree that this program was built from.
const SOURCE: &str = env!("CARGO_MANIFEST_DIR");

/// Writes the project, and prints how it is built.
///
/// # Errors
/// Exit 2: the folder is not empty, or can't be written.
pub fn run(args: &Args) -> Result<()> {
    let dir = &args.dir;
    let cannot = |e: std::io::Error| Error::usage(format!("cannot write {}: {e}", dir.display()));
    std::fs::create_dir_all(dir).map_err(cannot)?;
    if std::fs::read_dir(dir).map_err(cannot)?.next().is_some() {
        let error = Error::usage(format!("{} is not empty; nothing was written", dir.display()));
        return Err(error.hint("`ddp-run init custom DIR` names another folder"));
    }
    let name = name(&std::fs::canonicalize(dir).map_err(cannot)?);
    let source = source();
    for folder in ["src", "tests"] {
        std::fs::create_dir(dir.join(folder)).map_err(cannot)?;
    }
    for (path, text) in FILES {
        let text = text.replace(DEFAULT, &name).replace(DEPENDENCY, &dependency(source));
        write_new(&dir.join(path), &text)?;
    }
    // The versions that ddp-run was tested with. Cargo adds the project to it and drops what it does not need.
    let lock = source.and_then(|source| std::fs::read_to_string(source.join("Cargo.lock")).ok());
    if let Some(lock) = lock {
        write_new(&dir.join("Cargo.lock"), &lock)?;
    }
    super::super::print(&format!(
        "wrote {}: a model and a data set (src/main.rs), a spec (job.toml) and tests (tests/job.rs); next:\n\n    \
         cd {} && cargo run -- job.toml    # the first build compiles all of Burn, which takes minutes\n    \
         cargo test\n",
        dir.display(),
        base::display::shell_word(dir)
    ))
}

/// ddp-run's source tree, if it is still there and not the copy of a package that Cargo keeps.
fn source() -> Option<&'static Path> {
    let source = Path::new(SOURCE);
    let is_there = |name: &str| source.join(name).is_file();
    (is_there("Cargo.toml") && !is_there("Cargo.toml.orig")).then_some(source)
}

/// The manifest's line for ddp-run: from its source tree, or of this version; with the devices of this program.
fn dependency(source: Option<&Path>) -> String {
    let from = match source {
        Some(path) => format!("path = {}", quoted(&path.to_string_lossy())),
        None => format!("version = {}", quoted(env!("CARGO_PKG_VERSION"))),
    };
    let features =
        [("cuda", cfg!(feature = "cuda")), ("wgpu", cfg!(feature = "wgpu")), ("mpi", cfg!(feature = "mpi"))];
    let features: Vec<String> = features.iter().filter(|(_, on)| *on).map(|(name, _)| quoted(name)).collect();
    match features.is_empty() {
        true => format!("ddp-run = {{ {from} }}"),
        false => format!("ddp-run = {{ {from}, features = [{}] }}", features.join(", ")),
    }
}

/// The name of the package and of the run: that of the folder, in the letters that both may have.
fn name(dir: &Path) -> String {
    let folder = dir.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let name: String = folder.chars().map(plain).collect();
    let name = name.trim_matches('-');
    // Folders that Cargo makes beside its programs, crates that the program uses, and what a crate can't be called.
    let taken = [
        "build",
        "deps",
        "examples",
        "incremental",
        "burn",
        "serde",
        "ddp-run",
        "ddp_run",
        "test",
        "core",
        "std",
        "alloc",
    ];
    match name.chars().next() {
        Some(first) if first.is_ascii_lowercase() && !taken.contains(&name) => name.to_owned(),
        Some(_) => format!("job-{name}"),
        None => DEFAULT.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::ErrorKind;

    #[test]
    fn a_project_has_the_name_of_its_folder() {
        for (folder, expected) in [
            ("/a/my-net", "my-net"),
            ("/a/Vision Net 2", "vision-net-2"),
            ("/a/2nd", "job-2nd"),
            ("/a/burn", "job-burn"),
            ("/a/_x", "job-_x"),
            ("/a/é", "my-job"),
            ("/", "my-job"),
        ] {
            assert_eq!(name(Path::new(folder)), expected, "{folder}");
        }
    }

    #[test]
    fn the_dependency_is_the_source_tree_or_the_version() {
        for (source, key) in [(Some(Path::new("/a \"b\"")), "path"), (None, "version")] {
            let line: toml::Table = dependency(source).parse().unwrap();
            let value = line["ddp-run"][key].as_str().unwrap();
            assert!([r#"/a "b""#, env!("CARGO_PKG_VERSION")].contains(&value), "{line}");
        }
        assert!(MANIFEST.contains(DEPENDENCY));
    }

    #[test]
    fn a_folder_with_anything_in_it_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(".hidden"), "mine").unwrap();
        let error = run(&Args { dir: folder.path().into() }).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Usage);
        assert!(error.message.contains("is not empty"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let file = folder.path().join(".hidden");
        assert_eq!(run(&Args { dir: file.clone() }).unwrap_err().kind, ErrorKind::Usage);
        assert_eq!(std::fs::read_to_string(file).unwrap(), "mine");
    }
}
