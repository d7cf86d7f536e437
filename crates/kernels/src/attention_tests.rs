//! Attention compared with its definition in f64, gradients with central differences.

use super::super::testing::{check_gradients, close, exact, noise, same_bits_with_any_threads};
use super::*;

/// Each size with each choice of what a token sees; some windows leave out whole blocks.
fn shapes() -> impl Iterator<Item = AttentionShape> {
    let sizes = [
        [1, 1, 1, 1, 1],
        [3, 5, 2, 2, 4],
        [2, 64, 2, 1, 8],
        [1, 65, 3, 3, 5],
        [2, 150, 1, 1, 16],
        [2, 150, 4, 2, 3],
        [1, 150, 6, 1, 4],
    ];
    sizes.into_iter().flat_map(|[batch, time, heads, kv_heads, head]| {
        let sees = [Sees::Past, Sees::All, Sees::Window(1), Sees::Window(3), Sees::Window(70)];
        sees.map(|sees| AttentionShape { batch, time, heads, kv_heads, head, sees })
    })
}

/// The shapes, each without documents and with some in sequences of causal ones: of lengths that differ between sequences, and that fill
/// blocks or not.
fn cases() -> impl Iterator<Item = (AttentionShape, Vec<u32>)> {
    shapes().flat_map(|shape| {
        let lengths = [3, 1, 64, 2, 75, 5, 70].iter().cycle();
        let sequence = |s: usize| {
            let starts = lengths.clone().skip(2 * s).scan(0, |next, length| {
                let start = *next;
                *next += length;
                Some(std::iter::repeat_n(start as u32, *length))
            });
            starts.flatten().take(shape.time).collect::<Vec<_>>()
        };
        let documents = (shape.sees != Sees::All).then(|| (0..shape.batch).flat_map(sequence).collect());
        [Vec::new()].into_iter().chain(documents).map(move |documents| (shape, documents))
    })
}

fn reference(shape: AttentionShape, documents: &[u32], qkv: &[f64]) -> Vec<f64> {
    let (row, width) = (shape.row(), shape.width());
    let mut out = vec![0.0; shape.batch * shape.time * width];
    for (b, h) in (0..shape.batch).flat_map(|b| (0..shape.heads).map(move |h| (b, h))) {
        let shared = h * shape.kv_heads / shape.heads;
        let part =
            |column: usize, t: usize| &qkv[(b * shape.time + t) * row + column * shape.head..][..shape.head];
        for t in 0..shape.time {
            let score = |s: usize| {
                let key = part(shape.heads + shared, s);
                let dot: f64 = part(h, t).iter().zip(key).map(|(q, k)| q * k).sum();
                (dot / (shape.head as f64).sqrt()).exp()
            };
            let seen = match shape.sees {
                Sees::All => 0..shape.time,
                Sees::Past => 0..t + 1,
                Sees::Window(width) => (t + 1).saturating_sub(width)..t + 1,
            };
            let document = documents.get(b * shape.time + t).map_or(0, |start| *start as usize);
            let seen = seen.start.max(document)..seen.end;
            let weights: Vec<f64> = seen.clone().map(score).collect();
            let total: f64 = weights.iter().sum();
            for (s, weight) in seen.zip(weights) {
                let out = &mut out[(b * shape.time + t) * width + h * shape.head..];
                let value = part(shape.heads + shape.kv_heads + shared, s);
                out.iter_mut().zip(value).for_each(|(out, v)| *out += weight / total * v);
            }
        }
    }
    out
}

/// Output and gradient.
fn run(
    shape: AttentionShape,
    documents: &[u32],
    qkv: &[f32],
    dy: &[f32],
    parallelism: usize,
) -> Vec<Vec<f32>> {
    let mut out = vec![f32::NAN; dy.len()];
    let mut statistics = vec![[f32::NAN; 2]; shape.batch * shape.heads * shape.time];
    forward(shape, qkv, documents, &mut out, &mut statistics, parallelism);
    let mut dqkv = vec![f32::NAN; qkv.len()];
    let saved = AttentionInputs { qkv, documents, out: &out, statistics: &statistics };
    backward(shape, saved, dy, &mut dqkv, parallelism);
    vec![out, dqkv]
}

fn inputs(shape: AttentionShape) -> (Vec<f32>, Vec<f32>) {
    let rows = shape.batch * shape.time;
    (noise(rows * shape.row(), 1).iter().map(|x| 3.0 * x).collect(), noise(rows * shape.width(), 2))
}

#[test]
fn outputs_and_gradients_match_the_definition() {
    for (shape, documents) in cases() {
        let (qkv, dy) = inputs(shape);
        let results = run(shape, &documents, &qkv, &dy, 2);
        close("output", &results[0], &reference(shape, &documents, &exact(&qkv)), 3e-6);
        check_gradients(&[&qkv], &[&results[1]], |inputs| {
            reference(shape, &documents, &inputs[0]).iter().zip(&dy).map(|(y, &dy)| y * f64::from(dy)).sum()
        });
    }
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    for (shape, documents) in cases() {
        let (qkv, dy) = inputs(shape);
        same_bits_with_any_threads(|parallelism| run(shape, &documents, &qkv, &dy, parallelism));
    }
}

#[test]
fn large_scores_do_not_overflow() {
    for sees in [Sees::Past, Sees::Window(3)] {
        let shape = AttentionShape { batch: 1, time: 130, heads: 1, kv_heads: 1, head: 2, sees };
        let qkv: Vec<f32> = inputs(shape).0.iter().map(|x| 100.0 * x).collect();
        let dy = vec![1.0; 260];
        assert!(run(shape, &[], &qkv, &dy, 1).iter().flatten().all(|x| x.is_finite()));
    }
}

/// Finite values of tokens that a query does not see change nothing.
#[test]
fn a_query_does_not_see_later_tokens_nor_those_before_its_window() {
    let past = AttentionShape { batch: 1, time: 70, heads: 1, kv_heads: 1, head: 4, sees: Sees::Past };
    let window = AttentionShape { sees: Sees::Window(4), ..past };
    for (shape, changed, same) in [(past, 66..70, 0..66), (window, 0..2, 5..70)] {
        let (mut qkv, dy) = inputs(shape);
        let before = run(shape, &[], &qkv, &dy, 1);
        let row = shape.row();
        for v in &mut qkv[changed.start * row..changed.end * row] {
            *v += 1.0;
        }
        let same = same.start * 4..same.end * 4;
        assert_eq!(run(shape, &[], &qkv, &dy, 1)[0][same.clone()], before[0][same]);
    }
}

/// A document of a row has the bits that it has at the beginning of one, if it begins a block there too.
#[test]
fn a_document_does_not_depend_on_those_beside_it() {
    let row = AttentionShape { batch: 1, time: 150, heads: 2, kv_heads: 1, head: 4, sees: Sees::Past };
    let (qkv, dy) = inputs(row);
    let documents: Vec<u32> = (0..150).map(|t| if t < 128 { 0 } else { 128 }).collect();
    let together = run(row, &documents, &qkv, &dy, 1);
    let alone = AttentionShape { time: 22, ..row };
    let (of_qkv, of_out) = (128 * row.row(), 128 * row.width());
    let alone = run(alone, &[], &qkv[of_qkv..], &dy[of_out..], 1);
    assert_eq!([&together[0][of_out..], &together[1][of_qkv..]], [&alone[0][..], &alone[1]]);
}

#[test]
#[should_panic(expected = "documents of an attention")]
fn rejects_a_document_that_begins_after_its_token() {
    let shape = AttentionShape { batch: 1, time: 3, heads: 1, kv_heads: 1, head: 1, sees: Sees::Past };
    forward(shape, &[0.0; 9], &[0, 2, 2], &mut [0.0; 3], &mut [[0.0; 2]; 3], 1);
}
