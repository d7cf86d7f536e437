//! The measurement of one row, with the same code on every rank. Rank 0 measures the time and decides after each
//! chunk of iterations whether there is another one; a broadcast informs the others. The results are rank 0's, as in
//! the benchmark that they are compared with (PyTorch's gloo, chunks of 50 iterations below 4 MiB and single ones
//! from there).

use super::pattern::{Pattern, Wrong};
use super::plan::Case;
use base::error::{Error, Result};
use collectives::{ProcessGroup, ReduceOp, SliceMut, Wait};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Iterations before the measurement, each fully checked.
const WARM_UP: usize = 3;
const MIN_ITERATIONS: usize = 5;
/// From this size on, a chunk is a single iteration.
const LARGE: usize = 4 << 20;
const CHUNK: usize = 50;

/// Microseconds of one iteration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    pub iterations: usize,
    /// Number of results that were compared with the expected ones, element by element, on every rank.
    pub checks: usize,
    pub median_us: f64,
    pub p10_us: f64,
    pub p90_us: f64,
    pub min_us: f64,
}

/// Rank 0's decision before each chunk.
const STOP: u8 = 0;
const GO: u8 = 1;
const GO_AND_CHECK: u8 = 2;

/// Measures `case` in `buf`, which has the element type and length of the case. `Some` on rank 0.
///
/// Errors: that of the collective, or a wrong element (exit 70), of which the other ranks learn through the group's abort.
pub fn measure(
    group: &dyn ProcessGroup,
    case: &Case,
    op: ReduceOp,
    budget: Duration,
    buf: SliceMut<'_>,
) -> Result<Option<Timing>> {
    Row {
        group,
        case,
        op,
        pattern: Pattern { rank: group.rank(), world: group.world_size() },
        buf,
        checks: 0,
    }
    .run(budget)
}

struct Row<'a> {
    group: &'a dyn ProcessGroup,
    case: &'a Case,
    op: ReduceOp,
    pattern: Pattern,
    buf: SliceMut<'a>,
    checks: usize,
}

impl Row<'_> {
    fn run(mut self, budget: Duration) -> Result<Option<Timing>> {
        for _ in 0..WARM_UP {
            self.reduce_anew()?;
        }
        let chunk = if self.case.bytes() < LARGE { CHUNK } else { 1 };
        let (mut nanos, mut timed, mut checking) = (Vec::new(), Duration::ZERO, Duration::ZERO);
        let begun = Instant::now();
        loop {
            let word = match (begun.elapsed() < budget || nanos.len() < MIN_ITERATIONS, checking <= timed) {
                (false, _) => STOP,
                // Checks never take longer than the measurement itself.
                (true, true) => GO_AND_CHECK,
                (true, false) => GO,
            };
            let word = self.agree(word)?;
            if word == STOP {
                break;
            }
            self.group.barrier(Wait::Deadline)?;
            for _ in 0..chunk {
                self.make_repeatable(nanos.len())?;
                let start = Instant::now();
                self.group.all_reduce(self.buf.reborrow(), self.op)?;
                let took = start.elapsed();
                timed += took;
                nanos.push(took.as_nanos() as u64);
            }
            if word == GO_AND_CHECK {
                let start = Instant::now();
                self.check()?;
                checking += start.elapsed();
            }
        }
        self.check()?;
        self.reduce_anew()?;
        // A wrong element on another rank ends rank 0's row as well.
        self.group.barrier(Wait::Deadline)?;
        Ok((self.group.rank() == 0).then(|| timing(nanos, self.checks)))
    }

    /// One checked iteration with new contributions.
    fn reduce_anew(&mut self) -> Result<()> {
        self.pattern.fill(self.buf.reborrow());
        self.group.all_reduce(self.buf.reborrow(), self.op)?;
        self.check()
    }

    /// Keeps the result unchanged in the next iteration. That holds for a mean, maximum or minimum of results; for a
    /// sum, all ranks but one, in turn, contribute zeros. Not part of the measured time; the barrier prevents the
    /// rank without work from starting its clock early.
    fn make_repeatable(&mut self, iteration: usize) -> Result<()> {
        if self.op == ReduceOp::Sum {
            if iteration % self.pattern.world != self.pattern.rank {
                self.buf.bytes_mut().fill(0);
            }
            self.group.barrier(Wait::Deadline)?;
        }
        Ok(())
    }

    fn agree(&self, word: u8) -> Result<u8> {
        let mut word = [word];
        self.group.broadcast((&mut word[..]).into(), 0)?;
        Ok(word[0])
    }

    fn check(&mut self) -> Result<()> {
        self.checks += 1;
        self.pattern.check(self.buf.as_ref(), self.op).map_err(|wrong| {
            let Wrong { index, expected, got } = wrong;
            let what = format!(
                "wrong result on rank {}: element {index} of {} is {got}, expected {expected} ({} of {})",
                self.pattern.rank,
                self.case.count,
                self.op.name(),
                self.case
            );
            self.group.abort(&what);
            Error::internal(what)
        })
    }
}

/// The percentile of `part` (0 to 1) of sorted values, which must not be empty: the one of the nearest rank.
pub(super) fn nearest_rank<T: Copy>(sorted: &[T], part: f64) -> T {
    sorted[(part * (sorted.len() - 1) as f64).round() as usize]
}

/// Percentiles as in the compared script: the nearest rank, and for the median the mean of the middle two.
fn timing(mut nanos: Vec<u64>, checks: usize) -> Timing {
    nanos.sort_unstable();
    let n = nanos.len();
    let us = |nanos: u64| nanos as f64 / 1e3;
    let at = |part: f64| us(nearest_rank(&nanos, part));
    Timing {
        iterations: n,
        checks,
        median_us: (us(nanos[(n - 1) / 2]) + us(nanos[n / 2])) / 2.0,
        p10_us: at(0.1),
        p90_us: at(0.9),
        min_us: us(nanos[0]),
    }
}

#[cfg(test)]
#[path = "measure_tests.rs"]
mod tests;
