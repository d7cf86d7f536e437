//! The gated activation of Llama's MLPs (Shazeer, 2020, arXiv:2002.05202), without its linear layers.

use super::math::exp;
use super::tasks::{BLOCK, for_each, zip_blocks};
use super::wide::wide;

/// `out = silu(gate) * up`, with `silu(x) = x / (1 + exp(-x))`.
///
/// Panics if the lengths differ; so does [`backward`].
pub fn forward(gate: &[f32], up: &[f32], out: &mut [f32], parallelism: usize) {
    zip_blocks(parallelism, gate, up, out, multiply);
}

/// Gradients of `gate` and `up`, overwritten, from that of `out`.
pub fn backward(
    gate: &[f32],
    up: &[f32],
    dy: &[f32],
    dgate: &mut [f32],
    dup: &mut [f32],
    parallelism: usize,
) {
    let lengths = [gate, up, dgate, dup].map(|slice| slice.len());
    assert_eq!(lengths, [dy.len(); 4], "lengths of a SwiGLU's gradients");
    let inputs = gate.chunks(BLOCK).zip(up.chunks(BLOCK)).zip(dy.chunks(BLOCK));
    let tasks = dgate.chunks_mut(BLOCK).zip(dup.chunks_mut(BLOCK)).zip(inputs);
    for_each(parallelism, tasks, |((dgate, dup), ((gate, up), dy))| gradients(gate, up, dy, dgate, dup));
}

wide! {
    fn multiply(gate: &[f32], up: &[f32], out: &mut [f32]) {
        for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
            *out = gate / (1.0 + exp(-gate)) * up;
        }
    }
}

wide! {
    fn gradients(gate: &[f32], up: &[f32], dy: &[f32], dgate: &mut [f32], dup: &mut [f32]) {
        let inputs = gate.iter().zip(up).zip(dy);
        for ((dgate, dup), ((&gate, &up), &dy)) in dgate.iter_mut().zip(dup).zip(inputs) {
            let sigmoid = 1.0 / (1.0 + exp(-gate));
            *dgate = dy * up * sigmoid * (1.0 + gate * (1.0 - sigmoid));
            *dup = dy * gate * sigmoid;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_gradients, close, exact, noise, same_bits_with_any_threads};
    use super::*;

    fn reference(inputs: &[Vec<f64>]) -> Vec<f64> {
        inputs[0].iter().zip(&inputs[1]).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect()
    }

    /// Output, then the gradients of gate and up.
    fn run(gate: &[f32], up: &[f32], dy: &[f32], parallelism: usize) -> Vec<Vec<f32>> {
        let [mut out, mut dgate, mut dup] = [(); 3].map(|()| vec![f32::NAN; gate.len()]);
        forward(gate, up, &mut out, parallelism);
        backward(gate, up, dy, &mut dgate, &mut dup, parallelism);
        vec![out, dgate, dup]
    }

    fn inputs(len: usize) -> [Vec<f32>; 3] {
        [noise(len, 1).iter().map(|x| 9.0 * x).collect(), noise(len, 2), noise(len, 3)]
    }

    #[test]
    fn outputs_and_gradients_match_the_definition() {
        let [gate, up, dy] = inputs(BLOCK + 77);
        let results = run(&gate, &up, &dy, 2);
        close("output", &results[0], &reference(&[exact(&gate), exact(&up)]), 1e-6);
        check_gradients(&[&gate, &up], &[&results[1], &results[2]], |inputs| {
            reference(inputs).iter().zip(&dy).map(|(y, &dy)| y * f64::from(dy)).sum()
        });
    }

    #[test]
    fn large_gates_do_not_overflow() {
        assert_eq!(run(&[-200.0, 200.0], &[3.0; 2], &[1.0; 2], 1), [[0.0, 600.0], [0.0, 3.0], [0.0, 200.0]]);
    }

    #[test]
    fn the_bits_do_not_depend_on_the_number_of_threads() {
        let [gate, up, dy] = inputs(3 * BLOCK + 77);
        same_bits_with_any_threads(|parallelism| run(&gate, &up, &dy, parallelism));
    }
}
