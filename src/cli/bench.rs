//! `ddp-run bench`: measurements of the program's components.

use super::spec_args::SpecArgs;
use base::error::Result;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use collectives::gloo::{AlgorithmChoice, Transport};
use collectives::{DType, ReduceOp};
use ddp::device;
use job::plan::WorldRequest;
use job::registry::Registry;
use launch::cores::{threads_per_worker, usable_cores};
use std::ffi::OsStr;
use std::path::PathBuf;
use tools::bench::train::Measurement;
use tools::bench::{self, Plan, parse_sizes};

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum What {
    /// Time and bandwidth of the gloo engine's all-reduce between processes of this machine, with checked results
    Allreduce(Allreduce),
    /// Throughput of a spec's training steps, and where they spend their time, by number of processes and threads
    Train(Train),
}

/// Every combination of size, type, algorithm and transport is a row.
#[derive(Clone, Debug, clap::Args)]
#[command(hide_possible_values = true)]
struct Allreduce {
    /// Processes
    #[arg(long, value_name = "N", default_value_t = 2)]
    world: usize,
    /// Bytes, as a list of sizes (4, 64K, 1M, 1G) and ranges (min:max:factor)
    #[arg(long, value_name = "LIST", default_value = "4,1K,64K,1M,16M,64M,256M", value_parser = sizes)]
    sizes: Sizes,
    /// auto, ring, halving-doubling, tree, parameter-server, hierarchical, or all
    #[arg(long, value_name = "LIST", default_value = "auto", value_delimiter = ',')]
    #[arg(value_parser = named(AlgorithmChoice::ALL.iter().map(|a| (a.name(), Some(*a))).chain([("all", None)])))]
    algorithm: Vec<Option<AlgorithmChoice>>,
    /// auto, shm, tcp
    #[arg(long, value_name = "LIST", default_value = "auto", value_delimiter = ',')]
    #[arg(value_parser = named(Transport::ALL.iter().map(|t| (t.name(), *t))))]
    transport: Vec<Transport>,
    /// f32, f64, f16, bf16, i32, i64, u8
    #[arg(long, value_name = "LIST", default_value = "f32", value_delimiter = ',')]
    #[arg(value_parser = named(DType::ALL.map(|d| (d.name(), d))))]
    dtype: Vec<DType>,
    /// mean, sum, max or min
    #[arg(long, value_name = "OP", default_value = "mean")]
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

/// Every combination of `--world` and `--threads` is a row.
#[derive(Clone, Debug, clap::Args)]
struct Train {
    #[command(flatten)]
    spec: SpecArgs,
    /// Steps to measure, after 10 to warm up
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = count())]
    steps: u64,
    /// Numbers of processes, as in 1,2 [default: the spec's]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = count())]
    world: Vec<u64>,
    /// Compute threads of each process, as in 1,2 [default: the spec's, or cores / processes]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = count())]
    threads: Vec<u64>,
    /// Write train.json into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// A number from 1.
fn count() -> impl TypedValueParser<Value = u64> {
    clap::value_parser!(u64).range(1..=1 << 20)
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
    let known: Vec<_> = known.into_iter().collect();
    let names = PossibleValuesParser::new(known.iter().map(|(name, _)| *name));
    Trimmed(names.try_map(move |text| {
        let found = known.iter().find(|(name, _)| *name == text);
        found.map(|(_, value)| value.clone()).ok_or("unknown name")
    }))
}

/// Ignores the spaces around a value, as in `"shm, tcp"`.
#[derive(Clone)]
struct Trimmed<P>(P);

impl<P: TypedValueParser> TypedValueParser for Trimmed<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<P::Value, clap::Error> {
        let value = value.to_str().map_or(value, |text| text.trim().as_ref());
        self.0.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.0.possible_values()
    }
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

pub fn run(args: &Args, registry: &Registry) -> Result<()> {
    match &args.what {
        What::Allreduce(args) => bench::run(&args.plan(), args.out.as_deref(), &mut super::print),
        What::Train(args) => {
            bench::train::run(&args.measurement(registry)?, args.out.as_deref(), &mut super::print)
        }
    }
}

impl Train {
    fn measurement(&self, registry: &Registry) -> Result<Measurement> {
        let cores = usable_cores();
        let request = WorldRequest { devices: device::count, ..WorldRequest::default() };
        let plan = self.spec.plan(registry, request)?;
        let chosen = |list: &[u64], default: usize| match list {
            [] => vec![default],
            list => unique(list.iter().map(|n| *n as usize)),
        };
        let cases = |world: usize| {
            let default = plan.launch.threads.unwrap_or_else(|| threads_per_worker(cores, world));
            chosen(&self.threads, default).into_iter().map(move |threads| (world, threads))
        };
        let device = device::of_rank(plan.device, 0);
        Ok(Measurement {
            name: self.spec.spec.display().to_string(),
            toml: plan.to_toml(),
            device: device.to_string(),
            host: device == device::ComputeDevice::Cpu,
            batching: plan.batching(1),
            steps: self.steps as usize,
            cases: chosen(&self.world, plan.world.nproc_per_node).into_iter().flat_map(cases).collect(),
        })
    }
}

impl Allreduce {
    fn plan(&self) -> Plan {
        Plan {
            world: self.world,
            sizes: self.sizes.0.clone(),
            transports: unique(self.transport.iter().copied()),
            algorithms: match self.algorithm.contains(&None) {
                true => AlgorithmChoice::ALL.to_vec(),
                false => unique(self.algorithm.iter().copied().flatten()),
            },
            dtypes: unique(self.dtype.iter().copied()),
            op: self.op,
            budget: self.budget,
            timeout: self.timeout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: Allreduce,
    }

    fn planned(flags: &[&str]) -> Plan {
        let words = ["allreduce"].iter().chain(flags);
        Cli::try_parse_from(words).unwrap_or_else(|e| panic!("{flags:?}: {e}")).args.plan()
    }

    #[test]
    fn values_of_a_list_may_have_spaces_around_them() {
        let plan = planned(&["--transport", "shm, tcp", "--dtype", " bf16 ,f32", "--op", "sum "]);
        assert_eq!(plan.transports, [Transport::Shm, Transport::Tcp]);
        assert_eq!(plan.dtypes, [DType::BF16, DType::F32]);
        assert_eq!(plan.op, ReduceOp::Sum);
        for wrong in ["s hm", "", "shm,,tcp"] {
            assert!(Cli::try_parse_from(["allreduce", "--transport", wrong]).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn repeated_values_and_flags_are_measured_once() {
        let (auto, ring) = (AlgorithmChoice::Auto, AlgorithmChoice::Ring);
        for (flags, expected) in [
            (&["--algorithm", "ring,auto,ring"][..], &[ring, auto][..]),
            (&["--algorithm", "ring", "--algorithm", "auto", "--algorithm", "ring"], &[ring, auto]),
            (&["--algorithm", "ring,all"], &AlgorithmChoice::ALL),
            (&["--algorithm", "all", "--algorithm", "ring,all"], &AlgorithmChoice::ALL),
        ] {
            assert_eq!(planned(flags).algorithms, expected, "{flags:?}");
        }
        let plan = planned(&["--dtype", "f32,f32", "--transport", "tcp", "--transport", "tcp"]);
        assert_eq!((plan.dtypes, plan.transports), (vec![DType::F32], vec![Transport::Tcp]));
    }
}
