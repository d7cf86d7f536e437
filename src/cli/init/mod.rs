//! `ddp-run init [TEMPLATE] [PATH]`: writes a commented spec to start from, or a Cargo project. Nothing is overwritten.

mod columns;
mod csv;
mod custom;
mod image_table;
mod images;
mod text;

use super::schema::json_schema_text;
use base::display;
use base::error::{Error, Result};
use clap::Subcommand;
use job::registry::Registry;
use spec::did_you_mean;
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Write a commented job spec to start from
#[derive(Clone, Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    override_usage = "ddp-run init [PATH]\n       ddp-run init TEMPLATE [FILE|DIR] [PATH]"
)]
pub struct Args {
    #[command(subcommand)]
    template: Option<Template>,
    /// The file to write, a job on generated images; it must not exist [default: job.toml]
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    /// What follows a template that does not exist.
    #[arg(hide = true)]
    rest: Vec<OsString>,
}

#[derive(Clone, Debug, Subcommand)]
enum Template {
    /// ResNet-18 on CIFAR-10
    Cifar10(Output),
    /// A small CNN on MNIST's handwritten digits
    Mnist(Output),
    Text(text::Args),
    Csv(csv::Args),
    ImageFolder(images::Args),
    Parquet(columns::ParquetArgs),
    Sqlite(columns::SqliteArgs),
    Custom(custom::Args),
}

/// Where a spec is written.
#[derive(Clone, Debug, clap::Args)]
struct Output {
    /// The file to write; it must not exist
    #[arg(value_name = "PATH", default_value = DEFAULT_PATH)]
    path: PathBuf,
}

const DEFAULT_PATH: &str = "job.toml";
const SHAPES: &str = include_str!("templates/shapes.toml");
const CIFAR10: &str = include_str!("templates/cifar10.toml");
const MNIST: &str = include_str!("templates/mnist.toml");
const TEXT: &str = include_str!("templates/text.toml");
/// Under the title of a spec made from data.
const WHERE_TO_LOOK: &str =
    "# `ddp-run plan` shows every resolved value; docs/spec.md of ddp-run lists every key.";
/// The file beside a spec by which editors check it.
const SCHEMA: &str = "ddp-run.schema.json";
/// The column of comments after values.
const COMMENTS: usize = 30;

/// Writes the template, and prints what to do next.
///
/// # Errors
/// Exit 2: there is no such template, or something is in its place already. Exit 78: the data that it is made for are
/// unusable.
pub fn run(args: &Args, registry: &Registry) -> Result<()> {
    let spec = |text: &str, path: &Path, about: &str| {
        let path = as_spec(path)?;
        write_spec(text, &path, about, registry)
    };
    // A spec made from data, and what was taken from them.
    let proposed =
        |found: Result<(String, String)>, to: &Path| found.and_then(|(text, about)| spec(&text, to, &about));
    match &args.template {
        None => spec(SHAPES, args.spec_path()?, ""),
        Some(Template::Cifar10(to)) => spec(CIFAR10, &to.path, ""),
        Some(Template::Mnist(to)) => spec(MNIST, &to.path, ""),
        Some(Template::Text(args)) => match args.paths() {
            (None, to) => spec(TEXT, to, ""),
            (Some(file), to) => proposed(text::proposal(file), to),
        },
        Some(Template::Csv(args)) => proposed(csv::proposal(args), &args.output.path),
        Some(Template::ImageFolder(args)) => proposed(images::proposal(args), &args.output.path),
        Some(Template::Parquet(args)) => proposed(columns::parquet(args), &args.output.path),
        Some(Template::Sqlite(args)) => proposed(columns::sqlite(args), &args.output.path),
        Some(Template::Custom(args)) => custom::run(args),
    }
}

impl Args {
    /// A first word that can't be a path, as for `ddp-run SPEC`, is the name of a template that does not exist.
    fn spec_path(&self) -> Result<&Path> {
        let Some(path) = &self.path else { return Ok(Path::new(DEFAULT_PATH)) };
        let word = path.to_string_lossy();
        if !word.contains(['/', '.']) {
            let command = Template::augment_subcommands(clap::Command::new("init"));
            let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
            let near = did_you_mean(&word, names.iter().copied());
            let word = display::name(&word);
            let error = Error::usage(format!("there is no template `{word}`{near}"));
            return Err(error.hint(format!("for a file of that name: `ddp-run init ./{word}`")));
        }
        match self.rest.first() {
            None => Ok(path),
            Some(more) => {
                let more = display::name(&more.to_string_lossy());
                Err(Error::usage(format!("unexpected argument `{more}` after the file to write"))
                    .hint("`ddp-run init --help` shows the order"))
            }
        }
    }
}

/// The path under which `ddp-run` takes a file for a spec: a word without a dot or a slash would be a subcommand, and one that
/// begins with a dash a flag.
fn as_spec(path: &Path) -> Result<PathBuf> {
    let word = path.to_string_lossy();
    if !word.contains(['/', '.']) {
        let shown = display::name(&word);
        return Err(Error::usage(format!("`{shown}` is not the name of a spec: it has no dot and no slash"))
            .hint(format!("`{shown}.toml`, or `./{shown}`")));
    }
    Ok(if word.starts_with('-') { Path::new(".").join(path) } else { path.to_owned() })
}

/// Writes a spec to a new file, and beside it the schema that it names, unless there is one. `about` is printed too: what the
/// template took from its data.
fn write_spec(text: &str, path: &Path, about: &str, registry: &Registry) -> Result<()> {
    let (schema, schema_text) = (path.with_file_name(SCHEMA), json_schema_text(registry));
    write_new(path, &format!("#:schema {SCHEMA}\n{text}"))?;
    let also = match base::files::read_text(&schema) {
        Ok(there) if there == schema_text => String::new(),
        Ok(_) => format!(
            "; {} is another program's or version's: `ddp-run schema > {}` writes this one's",
            display::name(&schema.display().to_string()),
            display::shell_word(&schema)
        ),
        Err(_) => {
            write_new(&schema, &schema_text)?;
            format!(" and, for editors, {}", schema.display())
        }
    };
    let word = display::shell_word(path);
    super::print(&format!(
        "wrote {}{about}{also}; `ddp-run plan {word}` shows the resolved plan, `ddp-run {word}` runs it\n",
        path.display()
    ))
}

/// Writes a file that must not exist.
fn write_new(path: &Path, text: &str) -> Result<()> {
    let shown = path.display();
    let cannot = |e: std::io::Error| {
        let (why, hint) = match e.kind() {
            ErrorKind::AlreadyExists => {
                ("it exists already".to_owned(), Some("give another name, or move it away"))
            }
            ErrorKind::NotFound => ("its folder does not exist".to_owned(), Some("make the folder first")),
            _ => (e.to_string(), None),
        };
        let error = Error::usage(format!("cannot write {shown}: {why}"));
        hint.into_iter().fold(error, Error::hint)
    };
    let mut file = std::fs::File::create_new(path).map_err(cannot)?;
    file.write_all(text.as_bytes()).map_err(cannot)
}

/// The first lines of a spec made from data.
fn head(name: &str, epochs: u32, batch_size: u32) -> Vec<String> {
    vec![
        commented(&format!("name = {}", quoted(name)), &format!("results go to runs/{name}")),
        "seed = 42".to_owned(),
        format!("epochs = {epochs}"),
        commented(&format!("batch_size = {batch_size}"), "per process"),
        String::new(),
    ]
}

/// Its last lines: `adamw` with these keys, the metric that ranks checkpoints, and `nproc_per_node` with its comment.
fn tail(adamw: &str, best: &str, (nproc_per_node, why): (&str, &str)) -> Vec<String> {
    vec![
        format!("\n[optimizer]\nname = \"adamw\"\n{adamw}\n"),
        commented("[scheduler]", "optional: without it the learning rate is constant"),
        "name = \"cosine\"\nunit = \"step\"\n\n[checkpoint]".to_owned(),
        commented(&format!("best = {}", quoted(best)), "the best checkpoint is kept besides the newest"),
        "\n[launch]".to_owned(),
        commented(&format!("nproc_per_node = {nproc_per_node}"), why),
    ]
}

/// A line of a spec with a comment.
fn commented(line: &str, comment: &str) -> String {
    format!("{line:<COMMENTS$}{}# {comment}", if line.chars().count() < COMMENTS { "" } else { "   " })
}

/// A name from data, in a comment or a message.
fn foreign(name: &str) -> String {
    display::name(name)
}

/// A path as a spec names it.
fn utf8(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        Error::usage(format!("{} is not UTF-8, as a spec has to be", path.display()))
            .hint("give it another name")
    })
}

/// A path of data as a line of a spec.
fn place(key: &str, path: &str) -> String {
    let line = format!("{key} = {}", quoted(path));
    match Path::new(path).is_absolute() {
        true => line,
        false => commented(&line, "relative to the folder in which ddp-run is started"),
    }
}

/// The name of a run on the data at `path`: that of the file or folder, in the letters that it may have.
fn run_name(path: &Path) -> String {
    // A link has the name by which it is known; `.` and `..` have none.
    let whole = match path.file_name() {
        Some(_) => path.to_owned(),
        None => std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()),
    };
    let name = if whole.is_dir() { whole.file_name() } else { whole.file_stem() };
    let stem = name.unwrap_or_default().to_string_lossy();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._".contains(c) { c } else { '-' };
    let name: String = stem.chars().map(plain).collect();
    match name.trim_matches(['.', '-']) {
        "" => "my-job".to_owned(),
        name => name.to_owned(),
    }
}

/// `text` as a value of TOML.
fn quoted(text: &str) -> String {
    if !text.contains(display::is_control) {
        return toml::Value::from(text).to_string();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if display::is_control(c) => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests;
