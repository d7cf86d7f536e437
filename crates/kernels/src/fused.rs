//! The loop of every element-wise optimizer: updates parameter and state tensors in place, in one pass over memory, on
//! all compute threads. It is compiled for several instruction sets (`wide!`), which do the same IEEE operations in the
//! same order per element, so the bits do not depend on the CPU.

use crate::tasks;
use crate::wide::wide;

/// Elements processed together: two AVX2 registers per tensor.
const LANES: usize = 16;

/// Elements of a task. Every element is computed alone, so that this does not change a bit here; it does in the norm
/// ([`crate::global_norm`]), which is summed in blocks as large.
pub(super) const TASK: usize = 1 << 15;

/// For each element `i`: `(param[i], state[k][i]) = f(param[i], grad[i], state[k][i])`.
///
/// Panics if the lengths differ: the caller sized the state wrongly.
pub fn for_each<const N: usize, F>(param: &mut [f32], grad: &[f32], state: [&mut [f32]; N], f: F)
where
    F: Fn(f32, f32, [f32; N]) -> (f32, [f32; N]) + Copy + Sync,
{
    assert_eq!(param.len(), grad.len(), "parameter and gradient differ in length");
    for s in &state {
        assert_eq!(param.len(), s.len(), "parameter and optimizer state differ in length");
    }
    let mut states = state.map(|s| s.chunks_mut(TASK));
    let parts: Vec<_> = (param.chunks_mut(TASK).zip(grad.chunks(TASK)))
        .map(|(param, grad)| (param, grad, states.each_mut().map(|s| s.next().unwrap_or_default())))
        .collect();
    tasks::for_each(rayon::current_num_threads(), parts.into_iter(), |(param, grad, state)| {
        update(param, grad, state, f);
    });
}

wide! {
    fn update[const N: usize, F: Fn(f32, f32, [f32; N]) -> (f32, [f32; N]) + Copy](
        param: &mut [f32],
        grad: &[f32],
        state: [&mut [f32]; N],
        f: F,
    ) {
        let whole = param.len() / LANES * LANES;
        let mut at = 0;
        while at < whole {
            // Local arrays of fixed size cannot alias, so the compiler can vectorise.
            let mut p = [0.0f32; LANES];
            let mut g = [0.0f32; LANES];
            let mut s = [[0.0f32; LANES]; N];
            p.copy_from_slice(&param[at..at + LANES]);
            g.copy_from_slice(&grad[at..at + LANES]);
            for k in 0..N {
                s[k].copy_from_slice(&state[k][at..at + LANES]);
            }
            for i in 0..LANES {
                let mut x = [0.0f32; N];
                for k in 0..N {
                    x[k] = s[k][i];
                }
                let (new, x) = f(p[i], g[i], x);
                p[i] = new;
                for k in 0..N {
                    s[k][i] = x[k];
                }
            }
            param[at..at + LANES].copy_from_slice(&p);
            for k in 0..N {
                state[k][at..at + LANES].copy_from_slice(&s[k]);
            }
            at += LANES;
        }
        for i in whole..param.len() {
            let mut x = [0.0f32; N];
            for k in 0..N {
                x[k] = state[k][i];
            }
            let (new, x) = f(param[i], grad[i], x);
            param[i] = new;
            for k in 0..N {
                state[k][i] = x[k];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds differently if a multiplication and an addition were fused.
    fn step(p: f32, g: f32, [a, b]: [f32; 2]) -> (f32, [f32; 2]) {
        let a = a * 0.9 + g * 0.1;
        let b = b * 0.99 + g * g * 0.01;
        (p - 0.1 * a / (b.sqrt() + 1e-8), [a, b])
    }

    #[test]
    fn the_result_is_that_of_a_plain_loop_bit_for_bit() {
        for n in [0, 1, 15, 16, 17, 31, 32, 33, 1003, 2 * TASK + 7] {
            let grad: Vec<f32> = (0..n).map(|i| ((i * 7919) % 1009) as f32 * 0.0137 - 6.5).collect();
            let mut expected = (vec![0.3f32; n], vec![0.1f32; n], vec![0.2f32; n]);
            let mut got = expected.clone();
            for _ in 0..3 {
                for (i, &g) in grad.iter().enumerate() {
                    let (p, [a, b]) = step(expected.0[i], g, [expected.1[i], expected.2[i]]);
                    (expected.0[i], expected.1[i], expected.2[i]) = (p, a, b);
                }
                for_each(&mut got.0, &grad, [&mut got.1, &mut got.2], step);
            }
            let bits = |v: &(Vec<f32>, Vec<f32>, Vec<f32>)| -> Vec<u32> {
                v.0.iter().chain(&v.1).chain(&v.2).map(|x| x.to_bits()).collect()
            };
            assert_eq!(bits(&got), bits(&expected), "{n} elements");
        }
    }

    #[test]
    #[should_panic(expected = "differ in length")]
    fn panics_if_the_state_has_another_length() {
        for_each(&mut [0.0; 4], &[0.0; 4], [&mut [0.0; 3]], |p, _, s| (p, s));
    }
}
