//! `ddp-run bench`: measurements of the program's components.

use crate::bench::{self, Plan, parse_sizes};
use crate::comm::gloo::{AlgorithmChoice, Transport};
use crate::comm::{DType, ReduceOp};
use crate::error::Result;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::path::PathBuf;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum What {
    /// Time and bandwidth of the gloo engine's all-reduce between processes of this machine, with checked results
    Allreduce(Allreduce),
}

/// Every combination of size, type, algorithm and transport is a row.
#[derive(Clone, Debug, clap::Args)]
struct Allreduce {
    /// Processes
    #[arg(long, value_name = "N", default_value_t = 2)]
    world: usize,
    /// Bytes, as a list of sizes (4, 64K, 1M, 1G) and ranges (min:max:factor)
    #[arg(long, value_name = "LIST", default_value = "4,1K,64K,1M,16M,64M,256M", value_parser = sizes)]
    sizes: Sizes,
    /// auto, ring, halving-doubling, tree, parameter-server, hierarchical, or all
    #[arg(
        long,
        value_name = "LIST",
        default_value = "auto",
        value_delimiter = ',',
        hide_possible_values = true
    )]
    #[arg(value_parser = named(AlgorithmChoice::ALL.iter().map(|a| (a.name(), Some(*a))).chain([("all", None)])))]
    algorithm: Vec<Option<AlgorithmChoice>>,
    /// auto, shm, tcp
    #[arg(
        long,
        value_name = "LIST",
        default_value = "auto",
        value_delimiter = ',',
        hide_possible_values = true
    )]
    #[arg(value_parser = named(Transport::ALL.iter().map(|t| (t.name(), *t))))]
    transport: Vec<Transport>,
    /// f32, f64, f16, bf16, i32, i64, u8
    #[arg(
        long,
        value_name = "LIST",
        default_value = "f32",
        value_delimiter = ',',
        hide_possible_values = true
    )]
    #[arg(value_parser = named(DType::ALL.map(|d| (d.name(), d))))]
    dtype: Vec<DType>,
    /// mean, sum, max or min
    #[arg(long, value_name = "OP", default_value = "mean", hide_possible_values = true)]
    #[arg(value_parser = named(ReduceOp::ALL.map(|op| (op.name(), op))))]
    op: ReduceOp,
    /// Seconds for each row
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    budget: f64,
    /// Seconds that a collective may take
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    timeout: f64,
    /// Write allreduce.json and allreduce.svg into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// A list of sizes in one argument.
#[derive(Clone, Debug)]
struct Sizes(Vec<usize>);

fn sizes(text: &str) -> Result<Sizes, String> {
    parse_sizes(text).map(Sizes)
}

/// A parser for one of these names.
fn named<T: Clone + Send + Sync + 'static>(
    known: impl IntoIterator<Item = (&'static str, T)>,
) -> impl TypedValueParser<Value = T> {
    let (names, values): (Vec<_>, Vec<_>) = known.into_iter().unzip();
    let parser = PossibleValuesParser::new(&names);
    parser.try_map(move |text| {
        let at = names.iter().position(|name| *name == text);
        at.map(|at| values[at].clone()).ok_or("unknown name")
    })
}

/// The values without repetitions, in their order.
fn unique<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut out = Vec::new();
    for value in values {
        if !out.contains(&value) {
            out.push(value);
        }
    }
    out
}

pub fn run(args: &Args) -> Result<()> {
    let What::Allreduce(args) = &args.what;
    let plan = Plan {
        world: args.world,
        sizes: args.sizes.0.clone(),
        transports: unique(args.transport.iter().copied()),
        algorithms: match args.algorithm.contains(&None) {
            true => AlgorithmChoice::ALL.to_vec(),
            false => unique(args.algorithm.iter().copied().flatten()),
        },
        dtypes: unique(args.dtype.iter().copied()),
        op: args.op,
        budget: args.budget,
        timeout: args.timeout,
    };
    bench::run(&plan, args.out.as_deref(), &mut std::io::stdout().lock())
}
