//! Rotary positions (Su et al., 2021, arXiv:2104.09864) in the layout of Hugging Face's models: element `i` of a head's first half is
//! rotated with element `i` of its second half.

use super::tasks::{BLOCK, for_each};
use super::wide::wide;

/// Sizes of the queries, keys and values whose positions are rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotaryShape {
    /// Tokens, of any number of sequences.
    pub rows: usize,
    /// Heads of each query.
    pub heads: usize,
    /// Heads of each key and value.
    pub kv_heads: usize,
    /// Elements of one head; even.
    pub head: usize,
}

impl RotaryShape {
    /// Elements of a row of queries, keys and values.
    fn widths(&self) -> [usize; 3] {
        [self.heads, self.kv_heads, self.kv_heads].map(|heads| heads * self.head)
    }

    fn row(&self) -> usize {
        self.widths().iter().sum()
    }

    /// Rows of a task.
    fn block(&self) -> usize {
        (BLOCK / self.row()).max(1)
    }

    fn check(&self, parts: [usize; 3], qkv: usize, table: usize) {
        assert!(self.head.is_multiple_of(2), "an odd head: {self:?}");
        assert_eq!(
            parts,
            self.widths().map(|width| self.rows * width),
            "lengths of rotary positions: {self:?}"
        );
        assert_eq!(qkv, self.rows * self.row(), "length of rotated rows: {self:?}");
        let positions = table / self.head;
        let fits = positions * self.head == table && (self.rows == 0 || self.rows.is_multiple_of(positions));
        assert!(fits, "length of a table of rotary positions, {table}: {self:?}");
    }
}

/// Writes queries and keys with their positions, and values as they are, to `qkv`, `[rows, heads + 2 * kv_heads, head]`: the input
/// of [`attention`](super::attention). `table` is `[positions, head]`, of each position first the cosines, then the sines of its angles;
/// rows have the positions in order, over and over.
///
/// Panics if a slice's length does not match `shape`; so does [`backward`].
pub fn forward(
    shape: RotaryShape,
    [q, k, v]: [&[f32]; 3],
    table: &[f32],
    qkv: &mut [f32],
    parallelism: usize,
) {
    shape.check([q, k, v].map(<[f32]>::len), qkv.len(), table.len());
    let (block, widths) = (shape.block(), shape.widths());
    let tasks = qkv.chunks_mut(block * shape.row()).enumerate();
    for_each(parallelism, tasks, |(task, qkv)| {
        for (i, qkv) in qkv.chunks_exact_mut(shape.row()).enumerate() {
            let row = task * block + i;
            let (to_q, rest) = qkv.split_at_mut(widths[0]);
            let (to_k, to_v) = rest.split_at_mut(widths[1]);
            let angles = angles(shape, table, row);
            rotate(row_of(q, widths[0], row), angles, 1.0, to_q);
            rotate(row_of(k, widths[1], row), angles, 1.0, to_k);
            to_v.copy_from_slice(row_of(v, widths[2], row));
        }
    });
}

/// Gradients of queries, keys and values, overwritten, from that of `qkv`: a rotation's is the rotation back.
pub fn backward(
    shape: RotaryShape,
    dqkv: &[f32],
    table: &[f32],
    [dq, dk, dv]: [&mut [f32]; 3],
    parallelism: usize,
) {
    shape.check([dq.len(), dk.len(), dv.len()], dqkv.len(), table.len());
    let (block, widths) = (shape.block(), shape.widths());
    let parts = dq.chunks_mut(block * widths[0]).zip(dk.chunks_mut(block * widths[1]));
    let tasks = parts.zip(dv.chunks_mut(block * widths[2])).enumerate();
    for_each(parallelism, tasks, |(task, ((dq, dk), dv))| {
        let rows = dq.chunks_exact_mut(widths[0]).zip(dk.chunks_exact_mut(widths[1]));
        for (i, ((dq, dk), dv)) in rows.zip(dv.chunks_exact_mut(widths[2])).enumerate() {
            let row = task * block + i;
            let (from_q, rest) = row_of(dqkv, shape.row(), row).split_at(widths[0]);
            let (from_k, from_v) = rest.split_at(widths[1]);
            let angles = angles(shape, table, row);
            rotate(from_q, angles, -1.0, dq);
            rotate(from_k, angles, -1.0, dk);
            dv.copy_from_slice(from_v);
        }
    });
}

fn row_of(values: &[f32], width: usize, row: usize) -> &[f32] {
    &values[row * width..(row + 1) * width]
}

/// Cosines and sines of a row's position.
fn angles(shape: RotaryShape, table: &[f32], row: usize) -> [&[f32]; 2] {
    let (cos, sin) = row_of(table, shape.head, row % (table.len() / shape.head)).split_at(shape.head / 2);
    [cos, sin]
}

wide! {
    /// Rotates each head of a row by its angles times `sign`.
    fn rotate(x: &[f32], angles: [&[f32]; 2], sign: f32, out: &mut [f32]) {
        let [cos, sin] = angles;
        let half = cos.len();
        let sin = &sin[..half];
        for (x, out) in x.chunks_exact(2 * half).zip(out.chunks_exact_mut(2 * half)) {
            let ((a, b), (to_a, to_b)) = (x.split_at(half), out.split_at_mut(half));
            for i in 0..half {
                to_a[i] = a[i] * cos[i] - b[i] * (sign * sin[i]);
                to_b[i] = b[i] * cos[i] + a[i] * (sign * sin[i]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{bits, check_gradients, close, exact, noise, same_bits_with_any_threads};
    use super::*;

    const SHAPES: [RotaryShape; 3] = [
        RotaryShape { rows: 6, heads: 1, kv_heads: 1, head: 2 },
        RotaryShape { rows: 60, heads: 4, kv_heads: 2, head: 6 },
        RotaryShape { rows: 900, heads: 3, kv_heads: 1, head: 64 },
    ];
    const POSITIONS: usize = 3;

    /// Queries, keys and values; then the table.
    fn inputs(shape: RotaryShape) -> ([Vec<f32>; 3], Vec<f32>) {
        let [q, k, v] = shape.widths().map(|width| shape.rows * width);
        let angles = noise(POSITIONS * shape.head / 2, 4);
        let table = angles.chunks(shape.head / 2).flat_map(|row| {
            let part = |f: fn(f32) -> f32| row.iter().map(move |angle| f(3.0 * angle));
            part(f32::cos).chain(part(f32::sin)).collect::<Vec<_>>()
        });
        ([noise(q, 1), noise(k, 2), noise(v, 3)], table.collect())
    }

    fn reference(shape: RotaryShape, parts: &[Vec<f64>], table: &[f64]) -> Vec<f64> {
        let half = shape.head / 2;
        let rotated = |which: usize, row: usize| -> Vec<f64> {
            let width = shape.widths()[which];
            let x = &parts[which][row * width..][..width];
            let angles = &table[row % POSITIONS * shape.head..][..shape.head];
            let at = |i: usize| {
                let (head, j) = (i / shape.head * shape.head, i % half);
                let (cos, sin) = (angles[j], angles[half + j]);
                let (a, b) = (x[head + j], x[head + half + j]);
                if i % shape.head < half { a * cos - b * sin } else { b * cos + a * sin }
            };
            (0..width).map(|i| if which == 2 { x[i] } else { at(i) }).collect()
        };
        (0..shape.rows).flat_map(|row| (0..3).flat_map(move |which| rotated(which, row))).collect()
    }

    fn run(shape: RotaryShape, parallelism: usize) -> Vec<Vec<f32>> {
        let ([q, k, v], table) = inputs(shape);
        let mut out = vec![f32::NAN; shape.rows * shape.row()];
        forward(shape, [&q, &k, &v], &table, &mut out, parallelism);
        let [mut dq, mut dk, mut dv] = [&q, &k, &v].map(|part| vec![f32::NAN; part.len()]);
        backward(shape, &noise(out.len(), 5), &table, [&mut dq, &mut dk, &mut dv], parallelism);
        vec![out, dq, dk, dv]
    }

    #[test]
    fn outputs_and_gradients_match_the_definition() {
        for shape in SHAPES {
            let ([q, k, v], table) = inputs(shape);
            let results = run(shape, 2);
            let table = exact(&table);
            let dy = noise(results[0].len(), 5);
            close("output", &results[0], &reference(shape, &[&q, &k, &v].map(|x| exact(x)), &table), 1e-6);
            check_gradients(&[&q, &k, &v], &[&results[1], &results[2], &results[3]], |inputs| {
                reference(shape, inputs, &table).iter().zip(&dy).map(|(y, &dy)| y * f64::from(dy)).sum()
            });
        }
    }

    #[test]
    fn values_are_copied_and_the_bits_do_not_depend_on_the_number_of_threads() {
        for shape in SHAPES {
            let ([_, _, v], _) = inputs(shape);
            let width = shape.widths()[2];
            for (row, v) in run(shape, 1)[0].chunks(shape.row()).zip(v.chunks(width)) {
                assert_eq!(bits(&row[row.len() - width..]), bits(v));
            }
            same_bits_with_any_threads(|parallelism| run(shape, parallelism));
        }
    }

    #[test]
    #[should_panic(expected = "length of a table of rotary positions, 8")]
    fn rejects_a_table_whose_positions_do_not_fit_the_rows() {
        let shape = RotaryShape { rows: 3, heads: 1, kv_heads: 1, head: 4 };
        forward(shape, [&[0.0; 12]; 3], &[0.0; 8], &mut [0.0; 36], 1);
    }
}
