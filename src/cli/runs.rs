//! `ddp-run runs`: lists, shows, compares and removes the folders of runs.

use base::display::{count, message};
use base::error::{Error, Result};
use base::screen::columns_of_output;
use clap::ValueEnum;
use job::plan::show_bytes;
use job::registry::Registry;
use serde_json::Value as Json;
use std::io::{BufRead, IsTerminal};
use std::path::{Path, PathBuf};
use tools::runs::{
    Filter, KeptParts, Listing, Ranking, Removal, RunFolder, SortBy, compare, compare_json, diff, diff_json,
    find, list_json, list_text, of_argument, ranking, show,
};

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    List(ListArgs),
    /// Show what is known of a run: how it went, its restarts and checkpoints, and the next command
    Show(ShowArgs),
    Diff(DiffArgs),
    Compare(CompareArgs),
    Rm(RmArgs),
}

/// List runs, the newest first
#[derive(Clone, Debug, clap::Args)]
pub struct ListArgs {
    /// Folders that contain runs, or runs [default: runs]
    #[arg(value_name = "DIR")]
    pub folders: Vec<PathBuf>,
    /// Order by a fact (`started`, `name`, `best`), a metric (`val.accuracy`) or a key of the spec; `-KEY` begins with the largest
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub sort: Option<SortBy>,
    /// The other way round
    #[arg(long)]
    pub reverse: bool,
    /// Only runs of which this holds, as in "state=done", "val.accuracy>=0.9", "optimizer.lr<0.1" or "name~cifar"; repeatable
    #[arg(long = "filter", value_name = "CONDITION")]
    pub filters: Vec<Filter>,
    /// At most so many
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Also the numbered folders of earlier starts
    #[arg(long)]
    pub archived: bool,
    /// How to print it
    #[arg(long, value_enum, default_value_t = TableFormat::Table)]
    pub format: TableFormat,
}

#[derive(Clone, Debug, clap::Args)]
pub struct ShowArgs {
    /// A run's folder, or its name in `runs`
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// How to print it
    #[arg(long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
}

/// Show what differs between two runs: spec, provenance, metrics
#[derive(Clone, Debug, clap::Args)]
pub struct DiffArgs {
    /// A run's folder, or its name in `runs`
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// Another one
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// How to print it
    #[arg(long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
}

/// Compare runs in a table: how they went, and the keys of the spec that differ
#[derive(Clone, Debug, clap::Args)]
pub struct CompareArgs {
    /// Folders of runs, or their names in `runs`
    #[arg(value_name = "RUN", required = true, num_args = 2..)]
    pub runs: Vec<PathBuf>,
    /// How to print it
    #[arg(long, value_enum, default_value_t = TableFormat::Table)]
    pub format: TableFormat,
}

/// Remove runs
#[derive(Clone, Debug, clap::Args)]
pub struct RmArgs {
    /// Folders of runs, or their names in `runs`
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    /// Remove only checkpoints, and keep the best
    #[arg(long)]
    pub keep_best: bool,
    /// Say what would be removed, and remove nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// Also remove files in a run's folder that no run has written
    #[arg(long)]
    pub all_files: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    Table,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TextFormat {
    Text,
    Json,
}

pub fn run(args: &Args, registry: &Registry) -> Result<()> {
    let ranking = ranking(registry);
    match &args.command {
        Command::List(args) => list(args, &ranking),
        Command::Show(args) => {
            let run = read(&args.run, &ranking)?;
            match args.format {
                TextFormat::Text => super::print(&message(&show(&run, &program()))),
                TextFormat::Json => print_json(&run.json()),
            }
        }
        Command::Diff(args) => {
            let [a, b] = [read(&args.a, &ranking)?, read(&args.b, &ranking)?];
            match args.format {
                TextFormat::Text => super::print(&message(&diff(&a, &b, columns_of_output()))),
                TextFormat::Json => print_json(&diff_json(&a, &b)),
            }
        }
        Command::Compare(args) => {
            let runs = args.runs.iter().map(|run| read(run, &ranking)).collect::<Result<Vec<_>>>()?;
            match args.format {
                TableFormat::Table => super::print(&message(&compare(&runs, columns_of_output()))),
                TableFormat::Json => print_json(&compare_json(&runs)),
            }
        }
        Command::Rm(args) => remove(args, &ranking),
    }
}

fn list(args: &ListArgs, ranking: Ranking<'_>) -> Result<()> {
    let mut sort = args.sort.clone().unwrap_or_else(SortBy::newest_first);
    sort.descending ^= args.reverse;
    let listing = Listing { filters: args.filters.clone(), sort, limit: args.limit };
    let (runs, unknown) = listing.select(find(&args.folders, args.archived, ranking)?);
    unknown.iter().for_each(|why| status!("warning: {}", message(why)));
    match args.format {
        TableFormat::Table => super::print(&message(&list_text(&runs, &listing, columns_of_output()))),
        TableFormat::Json => print_json(&list_json(&runs)),
    }
}

fn read(run: &Path, ranking: Ranking<'_>) -> Result<RunFolder> {
    Ok(RunFolder::read(&of_argument(run)?, ranking))
}

fn print_json(value: &Json) -> Result<()> {
    super::print(&format!("{value:#}\n"))
}

/// The name under which this program was started.
fn program() -> String {
    let path = std::env::current_exe().ok();
    let name = path.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    name.unwrap_or_else(|| "ddp-run".to_owned())
}

/// Nothing is removed before all runs are known to be removable.
fn remove(args: &RmArgs, ranking: Ranking<'_>) -> Result<()> {
    let kept = if args.keep_best { KeptParts::Best } else { KeptParts::Nothing };
    let removal = |run: &PathBuf| Removal::new(&read(run, ranking)?, kept, args.all_files);
    let removals = args.runs.iter().map(removal).collect::<Result<Vec<_>>>()?;
    let removals = Removal::without_repeats(removals);
    let bytes: u64 = removals.iter().map(|removal| removal.bytes).sum();
    if args.dry_run {
        let lines: String = removals.iter().map(|it| format!("would remove {}\n", it.words())).collect();
        return super::print(&message(&format!("{lines}{} in all\n", show_bytes(bytes))));
    }
    if !args.yes && !agreed(&removals, bytes)? {
        return super::print("nothing was removed\n");
    }
    let mut freed = 0;
    for removal in &removals {
        removal.carry_out()?;
        freed += removal.bytes;
        super::print(&message(&format!("removed {}\n", removal.words())))?;
    }
    super::print(&format!("{} are free\n", show_bytes(freed)))
}

/// Asks on the terminal.
///
/// # Errors
/// There is none (exit 2).
fn agreed(removals: &[Removal], bytes: u64) -> Result<bool> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        let what = "nothing is removed without a terminal to ask on";
        return Err(Error::usage(what).hint("`--yes` removes without asking; `--dry-run` says what"));
    }
    for removal in removals {
        status!("{}", message(&removal.words()));
    }
    status!("remove {}, {}? [y/N]", count(removals.len(), "item"), show_bytes(bytes));
    base::status::flush();
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    Ok(read.is_ok() && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}
