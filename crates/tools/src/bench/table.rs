//! The table on standard output, in the manner of nccl-tests: one line per row as it is measured, then the limits.

use super::limits::Limits;
use super::machine::Machine;
use super::plan::Plan;
use super::report::Row;
use super::units::{micros, rate, size};

/// Widths of the columns with names, which depend on the plan.
pub struct Table {
    dtype: usize,
    algorithm: usize,
    transport: usize,
}

impl Table {
    pub fn new(plan: &Plan) -> Self {
        let width = |title: &str, names: &mut dyn Iterator<Item = usize>| names.fold(title.len(), usize::max);
        Self {
            dtype: width("dtype", &mut plan.dtypes.iter().map(|d| d.name().len())),
            algorithm: width("algorithm", &mut plan.algorithms.iter().map(|a| a.name().len())),
            transport: width("transport", &mut plan.transports.iter().map(|t| t.name().len())),
        }
    }

    /// Machine and column names; every line ends with a newline.
    pub fn header(&self, plan: &Plan, machine: &Machine) -> String {
        format!(
            "# ddp-run {} · all-reduce ({}) between {} processes · gloo · {}\n# {}\n\
             # a row: {} s on rank 0's clock, results checked on every rank; GB/s are 10^9 bytes\n\n{}\n",
            machine.ddp_run,
            plan.op.name(),
            plan.world,
            machine.started,
            machine.facts(),
            plan.budget,
            self.line([
                "size",
                "dtype",
                "algorithm",
                "transport",
                "iterations",
                "median us",
                "p10 us",
                "p90 us",
                "min us",
                "algbw GB/s",
                "busbw GB/s",
                "check"
            ])
        )
    }

    pub fn row(&self, row: &Row) -> String {
        let t = &row.timing;
        self.line([
            &size(row.bytes),
            row.dtype.name(),
            row.algorithm.name(),
            row.transport.name(),
            &t.iterations.to_string(),
            &micros(t.median_us),
            &micros(t.p10_us),
            &micros(t.p90_us),
            &micros(t.min_us),
            &rate(row.algbw_gbs),
            &rate(row.busbw_gbs),
            row.check,
        ])
    }

    fn line(&self, cells: [&str; 12]) -> String {
        let [bytes, dtype, algorithm, transport, rest @ ..] = cells;
        let names = format!(
            "{bytes:>9}  {dtype:<0$}  {algorithm:<1$}  {transport:<2$}",
            self.dtype, self.algorithm, self.transport
        );
        let [iterations, median, p10, p90, min, algbw, busbw, check] = rest;
        format!(
            "{names}  {iterations:>10}  {median:>9}  {p10:>8}  {p90:>8}  {min:>8}  {algbw:>10}  {busbw:>10}  {check:>5}"
        )
    }
}

/// The lines below the rows.
pub fn limits(limits: &Limits, world: usize) -> String {
    let all = format!("memcpy, {world} at once");
    let mut out = format!(
        "\nlimits of this machine, measured just before (of several at once, each)\n{:>9}  {:>14}  {all:>18}  {:>17}  {:>16}\n",
        "size", "memcpy, 1 core", "loopback TCP", "message time"
    );
    for s in &limits.sizes {
        out += &format!(
            "{:>9}  {:>9} GB/s  {:>13} GB/s  {:>12} GB/s  {:>13} us\n",
            size(s.bytes),
            rate(s.memcpy_one_gbs),
            rate(s.memcpy_all_gbs),
            rate(s.tcp_gbs),
            micros(s.tcp_us)
        );
    }
    out + &format!("half of a round trip of 4 bytes over loopback TCP: {} us\n", micros(limits.tcp_ping_us))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::tests::plan;
    use crate::bench::report::tests::report;

    #[test]
    fn the_table_is_aligned_and_complete() {
        let report = report();
        let table = Table::new(&plan());
        let rows: Vec<String> = report.rows.iter().map(|r| table.row(r)).collect();
        let text =
            table.header(&plan(), &report.machine) + &rows.join("\n") + "\n" + &limits(&report.limits, 2);
        assert_eq!(text, include_str!("table_expected.txt"), "\n{text}");
    }
}
