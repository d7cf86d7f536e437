//! The result of a measurement, and its files: `allreduce.json` for scripts, `allreduce.svg` for readers.

use super::limits::Limits;
use super::machine::Machine;
use super::measure::Timing;
use super::plan::{Case, Plan};
use super::{svg, units};
use base::error::Result;
use base::files;
use collectives::DType;
use collectives::gloo::{AlgorithmChoice, Transport};
use record::provenance;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A key of all files with measurements.
pub const MARK: &str = "\"command_line\"";

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BenchReport {
    pub machine: Machine,
    pub command_line: Vec<String>,
    pub backend: &'static str,
    pub world: usize,
    pub op: &'static str,
    pub budget_s: f64,
    pub warnings: Vec<String>,
    pub limits: Limits,
    pub rows: Vec<Row>,
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub bytes: usize,
    pub count: usize,
    pub dtype: DType,
    pub algorithm: AlgorithmChoice,
    pub transport: Transport,
    #[serde(flatten)]
    pub timing: Timing,
    /// Bytes / median time, GB/s (10^9 bytes).
    pub algbw_gbs: f64,
    /// algbw times 2 (n - 1) / n: the minimum that each rank must send and receive.
    pub busbw_gbs: f64,
    /// Constant: a row with a wrong element ends the measurement.
    pub check: &'static str,
}

impl Row {
    pub fn new(case: &Case, timing: Timing, world: usize) -> Self {
        let algbw_gbs = units::gbs(case.bytes(), timing.median_us);
        Self {
            bytes: case.bytes(),
            count: case.count,
            dtype: case.dtype,
            algorithm: case.algorithm,
            transport: case.transport,
            timing,
            algbw_gbs,
            busbw_gbs: algbw_gbs * 2.0 * (world - 1) as f64 / world as f64,
            check: "ok",
        }
    }

    /// Whether `next` only differs in its size.
    pub fn continues_as(&self, next: &Row) -> bool {
        let line = |r: &Row| (r.transport, r.algorithm, r.dtype);
        line(self) == line(next)
    }
}

impl BenchReport {
    pub fn new(plan: &Plan, machine: Machine, limits: Limits, rows: Vec<Row>) -> Self {
        Self {
            command_line: provenance::command_line(),
            backend: "gloo",
            world: plan.world,
            op: plan.op.name(),
            budget_s: plan.budget,
            warnings: machine.warnings(plan.world, "processes"),
            machine,
            limits,
            rows,
        }
    }

    /// The files that are written into `dir`.
    fn paths(dir: &Path) -> [PathBuf; 2] {
        ["allreduce.json", "allreduce.svg"].map(|name| dir.join(name))
    }

    /// Checks that files of the same names in `dir` are of earlier measurements.
    ///
    /// # Errors
    /// Exit code 74: they are of others.
    pub fn may_write(dir: &Path) -> Result<()> {
        let [json, svg] = Self::paths(dir);
        files::replaces_no_other(&json, &[MARK])?;
        files::replaces_no_other(&svg, &[" · ddp-run "])
    }

    /// Writes both files into `dir`, which must exist, and returns their paths.
    pub fn write(&self, dir: &Path) -> Result<[PathBuf; 2]> {
        let paths = Self::paths(dir);
        files::replace_json(&paths[0], self)?;
        files::replace(&paths[1], svg::render(self).as_bytes())?;
        Ok(paths)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::bench::limits::SizeLimits;
    use crate::bench::plan::tests::plan;
    use record::Host;

    /// Two algorithms with four sizes and simple values.
    pub fn report() -> BenchReport {
        let sizes = vec![4, 1 << 10, 1 << 20, 64 << 20];
        let plan = Plan { sizes: sizes.clone(), ..plan() };
        let host = Host {
            name: "box".into(),
            os: "Linux".into(),
            kernel: "Linux 6.1".into(),
            arch: "x86_64".into(),
            cpu: "AMD <EPYC> & co".into(),
            cores: 2,
        };
        let machine = Machine {
            ddp_run: "0.1.0",
            started: "2026-11-21T06:00:00Z".into(),
            host,
            load_average: Some(0.12),
            optimized: true,
        };
        let limit = |bytes: usize| {
            let tcp_us = 20.0 + bytes as f64 / 2e3;
            SizeLimits {
                bytes,
                memcpy_one_gbs: 12.0,
                memcpy_all_gbs: 9.0,
                tcp_us,
                tcp_gbs: units::gbs(bytes, tcp_us),
            }
        };
        let limits = Limits { tcp_ping_us: 14.3, sizes: sizes.iter().map(|s| limit(*s)).collect() };
        let row = |case: &Case| {
            let slow = if case.algorithm == AlgorithmChoice::Ring { 1.5 } else { 1.0 };
            let median_us = slow * (25.0 + case.bytes() as f64 / 1e3);
            let (p10_us, p90_us, min_us) = (median_us * 0.9, median_us * 1.25, median_us * 0.8);
            let timing = Timing { iterations: 1000, checks: 21, median_us, p10_us, p90_us, min_us };
            Row::new(case, timing, 2)
        };
        let rows = plan.all_cases().iter().map(row).collect();
        BenchReport {
            command_line: vec!["ddp-run".into(), "bench".into()],
            ..BenchReport::new(&plan, machine, limits, rows)
        }
    }

    #[test]
    fn bus_bandwidth_counts_the_bytes_that_each_rank_moves() {
        let case = plan().all_cases()[1];
        let timing =
            Timing { iterations: 1, checks: 1, median_us: 1.024, p10_us: 1.0, p90_us: 2.0, min_us: 1.0 };
        let at = |world| Row::new(&case, timing, world);
        assert_eq!((at(2).algbw_gbs, at(2).busbw_gbs), (1.0, 1.0));
        assert_eq!((at(4).algbw_gbs, at(4).busbw_gbs), (1.0, 1.5));
    }

    #[test]
    fn writes_json_with_every_figure_and_svg() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("a/b");
        std::fs::create_dir_all(&out).unwrap();
        let [json, svg] = report().write(&out).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
        let row = &json["rows"][4];
        assert_eq!(
            (&row["algorithm"], &row["transport"], &row["dtype"]),
            (&"ring".into(), &"tcp".into(), &"f32".into())
        );
        for key in
            "bytes count iterations checks median_us p10_us p90_us min_us algbw_gbs busbw_gbs".split(' ')
        {
            assert!(row[key].is_number(), "{key} in {row}");
        }
        assert_eq!(row["check"], "ok");
        assert_eq!(json["machine"]["cores"], 2);
        assert_eq!(json["limits"]["sizes"][0]["bytes"], 4);
        assert!(std::fs::read_to_string(svg).unwrap().starts_with("<svg"));
    }
}
