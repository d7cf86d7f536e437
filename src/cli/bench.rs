//! `ddp-run bench`: measurements of the program's components.

use crate::bench::{self, Plan, parse_names, parse_sizes};
use crate::comm::gloo::{AlgorithmChoice, Transport};
use crate::comm::{DType, ReduceOp};
use crate::error::Result;
use clap::builder::{PossibleValue, TypedValueParser};
use std::ffi::OsStr;
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
    #[arg(long, value_name = "LIST", default_value = "auto", hide_possible_values = true)]
    #[arg(value_parser = Named { parse: algorithms, names: || AlgorithmChoice::ALL.iter().map(|a| a.name()).chain(["all"]).collect() })]
    algorithm: List<AlgorithmChoice>,
    /// auto, shm, tcp
    #[arg(long, value_name = "LIST", default_value = "auto", hide_possible_values = true)]
    #[arg(value_parser = Named { parse: transports, names: || Transport::ALL.iter().map(|t| t.name()).collect() })]
    transport: List<Transport>,
    /// f32, f64, f16, bf16, i32, i64, u8
    #[arg(long, value_name = "LIST", default_value = "f32", hide_possible_values = true)]
    #[arg(value_parser = Named { parse: dtypes, names: || DType::ALL.map(|d| d.name()).to_vec() })]
    dtype: List<DType>,
    /// mean, sum, max or min
    #[arg(long, value_name = "OP", default_value = "mean", hide_possible_values = true)]
    #[arg(value_parser = Named { parse: op, names: || ReduceOp::ALL.map(|op| op.name()).to_vec() })]
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

/// A value parser with names for shell completion.
#[derive(Clone)]
struct Named<T> {
    parse: fn(&str) -> Result<T, String>,
    names: fn() -> Vec<&'static str>,
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Named<T> {
    type Value = T;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<T, clap::Error> {
        self.parse.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.names)().into_iter().map(PossibleValue::new)))
    }
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
    found.ok_or_else(|| format!("unknown operation `{text}`; expected mean, sum, max or min"))
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
