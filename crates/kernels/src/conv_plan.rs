//! The pairs of pixels and taps that a convolution multiplies. A plan lists, for each destination pixel, runs of
//! neighbouring source pixels and taps. Padding does not occur in it, so a 3x3 kernel on a 2x2 map costs 16 pairs of
//! pixel and tap, not 36. With the channels innermost, a run is one contiguous operand of a matrix product.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use super::conv::ConvShape;

/// `taps` neighbouring taps from position `tap` (in [`Plan::taps`]) are multiplied with as many source pixels from
/// `src`; the products are added to pixel `dst`. Pixels are numbered by row; positions and pixels both ascend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TapRun {
    pub dst: usize,
    pub src: usize,
    pub tap: usize,
    pub taps: usize,
}

/// A plan for one direction. `runs` are sorted by destination; a destination may have none.
#[derive(Debug)]
pub(super) struct Plan {
    /// The kernel index (`row * kernel width + column`) of each tap that meets at least one pixel, in the order used by
    /// runs.
    pub taps: Vec<usize>,
    pub runs: Vec<TapRun>,
}

impl Plan {
    /// Destination: output pixels; source: input pixels.
    pub(super) fn forward(shape: &ConvShape) -> Arc<Plan> {
        cached(shape, Direction::Forward)
    }

    /// Destination: input pixels; source: output pixels.
    pub(super) fn backward(shape: &ConvShape) -> Arc<Plan> {
        cached(shape, Direction::Backward)
    }

    /// Each destination pixel with its runs.
    pub(super) fn by_pixel(&self, pixels: usize) -> impl Iterator<Item = (usize, &[TapRun])> {
        let mut rest = &self.runs[..];
        (0..pixels).map(move |pixel| {
            let (runs, after) = rest.split_at(rest.iter().take_while(|run| run.dst == pixel).count());
            rest = after;
            (pixel, runs)
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Direction {
    Forward,
    Backward,
}

/// Shapes cached per thread: more than any model has.
const REMEMBERED: usize = 512;

type Plans = HashMap<(ConvShape, Direction), Arc<Plan>>;

fn cached(shape: &ConvShape, direction: Direction) -> Arc<Plan> {
    thread_local! {
        static PLANS: RefCell<Plans> = RefCell::default();
    }
    // The plan does not depend on the batch or the channels.
    let key = (ConvShape { batch: 1, in_channels: 1, out_channels: 1, ..*shape }, direction);
    let make = || match direction {
        Direction::Forward => Arc::new(make_forward(shape)),
        Direction::Backward => Arc::new(make_backward(shape)),
    };
    PLANS.with_borrow_mut(|plans| {
        if plans.len() >= REMEMBERED {
            plans.clear();
        }
        Arc::clone(plans.entry(key).or_insert_with(make))
    })
}

/// One axis of a convolution.
struct Axis {
    input: usize,
    output: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
}

impl Axis {
    fn both(shape: &ConvShape) -> [Axis; 2] {
        let sizes = [(shape.height, shape.out_height()), (shape.width, shape.out_width())];
        [0, 1].map(|i| Axis {
            input: sizes[i].0,
            output: sizes[i].1,
            kernel: shape.kernel[i],
            stride: shape.stride[i],
            padding: shape.padding[i],
        })
    }

    /// The input position for `tap` at `output`, unless it is padding.
    fn input_at(&self, output: usize, tap: usize) -> Option<usize> {
        (output * self.stride + tap).checked_sub(self.padding).filter(|&input| input < self.input)
    }

    /// The output position for `tap` at `input`, if there is one.
    fn output_at(&self, input: usize, tap: usize) -> Option<usize> {
        let offset = (input + self.padding).checked_sub(tap)?;
        Some(offset / self.stride).filter(|&output| offset % self.stride == 0 && output < self.output)
    }

    fn used(&self, tap: usize) -> bool {
        (0..self.output).any(|output| self.input_at(output, tap).is_some())
    }
}

fn make_forward(shape: &ConvShape) -> Plan {
    let [rows, columns] = Axis::both(shape);
    let order = (0..columns.kernel).collect();
    make(shape, &rows, &columns, order, [rows.output, columns.output], columns.input, Axis::input_at)
}

fn make_backward(shape: &ConvShape) -> Plan {
    let [rows, columns] = Axis::both(shape);
    // An input pixel meets the taps of one residue of the stride; descending taps correspond to ascending output pixels.
    let stride = columns.stride;
    let order = (0..stride).flat_map(|residue| (residue..columns.kernel).step_by(stride).rev()).collect();
    make(shape, &rows, &columns, order, [rows.input, columns.input], columns.output, Axis::output_at)
}

/// `meets(axis, dst, tap)` returns the source position; `order` lists the taps of a kernel row so that sources ascend.
fn make(
    shape: &ConvShape,
    rows: &Axis,
    columns: &Axis,
    order: Vec<usize>,
    dst_size: [usize; 2],
    src_width: usize,
    meets: fn(&Axis, usize, usize) -> Option<usize>,
) -> Plan {
    let tap_rows: Vec<usize> = (0..rows.kernel).filter(|&tap| rows.used(tap)).collect();
    let tap_columns: Vec<usize> = order.into_iter().filter(|&tap| columns.used(tap)).collect();
    let taps =
        tap_rows.iter().flat_map(|row| tap_columns.iter().map(move |column| row * shape.kernel[1] + column));
    let mut runs: Vec<TapRun> = Vec::new();
    for (dst_row, dst_column) in
        (0..dst_size[0]).flat_map(|row| (0..dst_size[1]).map(move |column| (row, column)))
    {
        let dst = dst_row * dst_size[1] + dst_column;
        for (i, &tap_row) in tap_rows.iter().enumerate() {
            let Some(src_row) = meets(rows, dst_row, tap_row) else { continue };
            for (j, &tap_column) in tap_columns.iter().enumerate() {
                let Some(src_column) = meets(columns, dst_column, tap_column) else { continue };
                let next = TapRun {
                    dst,
                    src: src_row * src_width + src_column,
                    tap: i * tap_columns.len() + j,
                    taps: 1,
                };
                match runs.last_mut() {
                    Some(last)
                        if last.dst == dst
                            && last.src + last.taps == next.src
                            && last.tap + last.taps == next.tap =>
                    {
                        last.taps += 1;
                    }
                    _ => runs.push(next),
                }
            }
        }
    }
    Plan { taps: taps.collect(), runs }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn square(size: usize, kernel: usize, stride: usize, padding: usize) -> ConvShape {
        ConvShape {
            batch: 1,
            in_channels: 1,
            height: size,
            width: size,
            out_channels: 1,
            kernel: [kernel; 2],
            stride: [stride; 2],
            padding: [padding; 2],
        }
    }

    fn pairs(plan: &Plan) -> usize {
        plan.runs.iter().map(|run| run.taps).sum()
    }

    #[test]
    fn taps_that_only_meet_padding_are_omitted() {
        assert_eq!(Plan::forward(&square(1, 3, 1, 1)).taps, [4]);
        assert_eq!(Plan::forward(&square(2, 3, 2, 1)).taps, [4, 5, 7, 8]);
        assert_eq!(pairs(&Plan::forward(&square(2, 3, 1, 1))), 16);
        assert_eq!(pairs(&Plan::forward(&square(8, 3, 1, 1))), 22 * 22);
    }

    #[test]
    fn both_directions_have_the_same_pairs() {
        for shape in [square(8, 3, 1, 1), square(9, 7, 2, 3), square(5, 2, 3, 0), square(4, 5, 2, 4)] {
            let list = |plan: &Plan, back: bool| {
                let mut list = Vec::new();
                for run in &plan.runs {
                    for i in 0..run.taps {
                        let (dst, src, tap) = (run.dst, run.src + i, plan.taps[run.tap + i]);
                        list.push(if back { (src, dst, tap) } else { (dst, src, tap) });
                    }
                }
                list.sort_unstable();
                list
            };
            let forward = list(&Plan::forward(&shape), false);
            assert!(!forward.is_empty());
            assert_eq!(forward, list(&Plan::backward(&shape), true));
        }
    }

    #[test]
    fn a_row_of_taps_is_one_run() {
        let inner = TapRun { dst: 9, src: 0, tap: 0, taps: 3 };
        assert!(Plan::forward(&square(8, 3, 1, 1)).runs.contains(&inner));
        assert_eq!(Plan::backward(&square(8, 3, 1, 1)).runs.iter().filter(|run| run.dst == 9).count(), 3);
    }
}
