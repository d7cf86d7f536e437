//! `ddp-run bench`. `train` measures training steps. The rest of this folder is `bench allreduce`, which measures the
//! collectives in the manner of nccl-tests.
//!
//! The parent measures the machine's limits (`limits`), and starts the ranks as processes of its own binary
//! (`processes`). Each rank measures row after row (`worker`, `measure`) on buffers whose reduction is known exactly
//! (`pattern`). The parent prints and plots rank 0's results (`messages`, `table`, `report`, `svg`).

mod limits;
mod machine;
mod measure;
mod messages;
mod pattern;
mod plan;
mod processes;
mod report;
mod svg;
mod table;
pub mod train;
mod units;
mod worker;

pub use plan::{Plan, parse_sizes};
pub use worker::run as work;

use base::error::{IoContext, Result};
use launch::own_program;
use machine::Machine;
use report::{BenchReport, Row};
use std::path::Path;
use table::Table;

/// Measures, passes the table to `print` line by line, and writes the files into `dir`, if given. Warnings go to standard error.
///
/// Errors: a plan that can't be measured (exit 2), a worker that failed or died, a wrong result (exit 70).
pub fn run(plan: &Plan, dir: Option<&Path>, print: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
    plan.check()?;
    let cases = plan.all_cases();
    machine::check_memory(plan.world, plan.largest())?;
    if let Some(dir) = dir {
        // Before the measurement, which takes minutes.
        std::fs::create_dir_all(dir).doing("create", dir)?;
        BenchReport::may_write(dir)?;
    }
    let machine = Machine::here();
    for warning in machine.warnings(plan.world, "processes") {
        status!("warning: {warning}");
    }
    let mut print = |text: &str| print(&format!("{text}\n"));
    let table = Table::new(plan);
    print(table.header(plan, &machine).trim_end())?;
    let mut sizes: Vec<usize> = cases.iter().map(plan::Case::bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let limits = limits::measure(plan.world, &sizes, plan.budget())?;
    let mut rows: Vec<Row> = Vec::new();
    processes::rows(plan, &own_program()?, &cases, &mut |case, timing| {
        let row = Row::new(case, *timing, plan.world);
        // A blank line separates groups of rows.
        if rows.last().is_some_and(|last| !last.continues_as(&row)) {
            print("")?;
        }
        print(&table.row(&row))?;
        rows.push(row);
        Ok(())
    })?;
    print(table::limits(&limits, plan.world).trim_end())?;
    if let Some(dir) = dir {
        let [json, svg] = BenchReport::new(plan, machine, limits, rows).write(dir)?;
        print(&format!("\nwrote {} and {}", json.display(), svg.display()))?;
    }
    Ok(())
}
