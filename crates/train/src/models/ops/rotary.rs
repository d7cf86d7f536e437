//! Rotary positions.

use super::attention::Heads;
use super::{Flat, buffer, record, recycle, register, tensor, threads, values};
use burn::backend::Flex;
use burn::tensor::Tensor;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use ddp::device::is_host;
use ddp::module::in_dtype;
use kernels::rotary::{self, RotaryShape};

/// Queries `[rows, heads * head]` and keys `[rows, kv_heads * head]`, rotated by their positions, and values, as
/// [`attention`](super::attention) takes them: `[rows, (heads + 2 * kv_heads) * head]`. As `apply_rotary_pos_emb` of `transformers`.
/// `table` is `[positions, head]`, in f32 and without autodiff: of each position first the cosines, then the sines of its angles. Rows
/// have the positions in order, over and over.
pub fn rotary([q, k, v]: [Tensor<2>; 3], table: &Tensor<2>, heads: Heads) -> Tensor<2> {
    let device = q.device();
    if !is_host(&device) {
        return composed([q, k, v], table, heads);
    }
    let ([rows, _], [_, head]) = (q.dims(), table.dims());
    let shape = RotaryShape { rows, heads: heads.queries, kv_heads: heads.keys, head };
    let table = super::plain(table.clone());
    if !device.is_autodiff() {
        let parts = [q, k, v].map(super::plain);
        let out = forward(shape, &parts, &table);
        parts.into_iter().for_each(recycle);
        return Tensor::from_primitive::<Flex>(out);
    }
    let [(q, q_node), (k, k_node), (v, v_node)] = [q, k, v].map(super::tracked);
    let parts = [q, k, v];
    let out = forward(shape, &parts, &table);
    parts.into_iter().for_each(recycle);
    record(RotaryStep, [q_node, k_node, v_node], (shape, table), out)
}

/// From Burn's operations.
fn composed([q, k, v]: [Tensor<2>; 3], table: &Tensor<2>, heads: Heads) -> Tensor<2> {
    let ([rows, _], [positions, head]) = (q.dims(), table.dims());
    let half = head / 2;
    let table = match q.device().is_autodiff() {
        true => Tensor::from_inner(table.clone()),
        false => table.clone(),
    };
    let table = in_dtype(table, q.dtype()).reshape([1, positions, 1, head]);
    let (cos, sin) = (table.clone().narrow(3, 0, half), table.narrow(3, half, half));
    let rotated = |x: Tensor<2>, heads: usize| {
        let x = x.reshape([rows / positions, positions, heads, head]);
        let (a, b) = (x.clone().narrow(3, 0, half), x.narrow(3, half, half));
        let first = a.clone() * cos.clone() - b.clone() * sin.clone();
        let second = b * cos.clone() + a * sin.clone();
        Tensor::cat(vec![first, second], 3).reshape([rows, heads * head])
    };
    Tensor::cat(vec![rotated(q, heads.queries), rotated(k, heads.keys), v], 1)
}

fn forward(shape: RotaryShape, parts: &[Flat; 3], table: &Flat) -> Flat {
    let row = (shape.heads + 2 * shape.kv_heads) * shape.head;
    let mut out = buffer(shape.rows * row);
    rotary::forward(shape, parts.each_ref().map(values), values(table), &mut out, threads());
    tensor(out, [shape.rows, row])
}

#[derive(Debug)]
struct RotaryStep;

impl Backward<Flex, 3> for RotaryStep {
    type State = (RotaryShape, Flat);

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dqkv = grads.consume::<Flex>(&ops.node).to_contiguous();
        let (shape, table) = &ops.state;
        let widths = [shape.heads, shape.kv_heads, shape.kv_heads].map(|heads| heads * shape.head);
        let mut parts = widths.map(|width| buffer(shape.rows * width));
        let [q, k, v] = parts.each_mut().map(Vec::as_mut_slice);
        rotary::backward(*shape, values(&dqkv), values(table), [q, k, v], threads());
        let mut widths = widths.into_iter();
        let gradients = parts.map(|part| tensor(part, [shape.rows, widths.next().unwrap_or_default()]));
        register(grads, &ops, gradients);
        recycle(dqkv);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, equal, frozen, leaves, random};
    use super::*;

    const HEADS: Heads = Heads { queries: 4, keys: 2 };
    const HEAD: usize = 6;
    const ROWS: usize = 3 * 5;

    type Rotary = fn([Tensor<2>; 3], &Tensor<2>, Heads) -> Tensor<2>;

    fn inputs() -> [Tensor<1>; 3] {
        leaves([HEADS.queries, HEADS.keys, HEADS.keys].map(|heads| ROWS * heads * HEAD))
    }

    fn apply(op: Rotary) -> impl Fn(&[Tensor<1>]) -> Tensor<2> {
        let table = random([5, HEAD], 9).inner();
        move |given| {
            let part = |i: usize, heads: usize| given[i].clone().reshape([heads * HEAD, ROWS]).transpose();
            op([part(0, HEADS.queries), part(1, HEADS.keys), part(2, HEADS.keys)], &table, HEADS)
        }
    }

    #[test]
    fn values_and_gradients_equal_burns() {
        equal("rotary", &inputs(), 1e-6, apply(rotary), apply(composed));
    }

    #[test]
    fn only_inputs_that_require_a_gradient_get_one() {
        frozen(&inputs(), apply(rotary));
    }

    #[test]
    fn held_activations_keep_their_values() {
        let [q, k, v] = inputs();
        testing::held_activations_keep_their_values(q, |q| {
            let out = apply(rotary)(&[q.clone(), k.clone(), v.clone()]);
            [q, out.reshape([ROWS * 8 * HEAD])]
        });
    }
}
