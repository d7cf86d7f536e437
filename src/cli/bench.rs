//! `ddp-run bench`: measurements of the program's own parts.

use crate::bench::{self, Plan, parse_names, parse_sizes};
use crate::comm::gloo::{AlgorithmChoice, Transport};
use crate::comm::{DType, ReduceOp};
use crate::error::Result;
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
    sizes: List<usize>,
    /// auto, ring, halving-doubling, tree, parameter-server, hierarchical, or all
    #[arg(long, value_name = "LIST", default_value = "auto", value_parser = algorithms)]
    algorithm: List<AlgorithmChoice>,
    /// auto, shm, tcp
    #[arg(long, value_name = "LIST", default_value = "auto", value_parser = transports)]
    transport: List<Transport>,
    /// f32, f64, f16, bf16, i32, i64, u8
    #[arg(long, value_name = "LIST", default_value = "f32", value_parser = dtypes)]
    dtype: List<DType>,
    #[arg(long, value_name = "OP", default_value = "mean", value_parser = op, help = "mean, sum, max or min")]
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

/// A comma-separated list in one argument.
#[derive(Clone, Debug)]
struct List<T>(Vec<T>);

fn sizes(text: &str) -> Result<List<usize>, String> {
    parse_sizes(text).map(List)
}

fn algorithms(text: &str) -> Result<List<AlgorithmChoice>, String> {
    if text == "all" {
        return Ok(List(AlgorithmChoice::ALL.to_vec()));
    }
    let known: Vec<_> = AlgorithmChoice::ALL.iter().map(|a| (a.name(), *a)).collect();
    parse_names(text, "algorithm", &known).map(List).map_err(|e| format!("{e}, or all"))
}

fn transports(text: &str) -> Result<List<Transport>, String> {
    let known: Vec<_> = Transport::ALL.iter().map(|t| (t.name(), *t)).collect();
    parse_names(text, "transport", &known).map(List)
}

fn dtypes(text: &str) -> Result<List<DType>, String> {
    parse_names(text, "type", &DType::ALL.map(|d| (d.name(), d))).map(List)
}

fn op(text: &str) -> Result<ReduceOp, String> {
    let found = ReduceOp::ALL.into_iter().find(|op| op.name() == text);
    found.ok_or_else(|| format!("unknown operation `{text}`; there are mean, sum, max, min"))
}

pub fn run(args: &Args) -> Result<()> {
    let What::Allreduce(args) = &args.what;
    let plan = Plan {
        world: args.world,
        sizes: args.sizes.0.clone(),
        transports: args.transport.0.clone(),
        algorithms: args.algorithm.0.clone(),
        dtypes: args.dtype.0.clone(),
        op: args.op,
        budget: args.budget,
        timeout: args.timeout,
    };
    bench::run(&plan, args.out.as_deref(), &mut std::io::stdout().lock())
}
