//! Rows of a table.

use super::cross_entropy::numbers_below;
use super::{Flat, buffer, record, register, tensor, values};
use burn::backend::Flex;
use burn::tensor::module as burn_ops;
use burn::tensor::{Int, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use ddp::device::is_host;

/// `torch.nn.functional.embedding`: `index`, `[batch, time]`, are numbers of rows of `weight`, `[rows, width]`; returns these rows,
/// `[batch, time, width]`.
///
/// In host memory, Burn's backward pass copies the gradient of the whole table twice.
///
/// Panics if there is no such row.
pub fn embedding(weight: Tensor<2>, index: Tensor<2, Int>) -> Tensor<3> {
    if !is_host(&weight.device()) || !weight.device().is_autodiff() {
        return burn_ops::embedding(weight, index);
    }
    let ([rows, width], [batch, time]) = (weight.dims(), index.dims());
    let numbers = numbers_below(rows, index.reshape([batch * time]))
        .unwrap_or_else(|number| panic!("there is no row {number} in an embedding of {rows}"));
    let (weight, node) = super::tracked(weight);
    let mut out = buffer(numbers.len() * width);
    let table = values(&weight);
    for (number, to) in numbers.iter().zip(out.chunks_exact_mut(width)) {
        to.copy_from_slice(row(table, *number, width));
    }
    let state = EmbeddingState { numbers, rows, width };
    record(EmbeddingStep, [node], state, tensor(out, [batch, time, width]))
}

fn row(table: &[f32], number: u32, width: usize) -> &[f32] {
    &table[number as usize * width..][..width]
}

#[derive(Clone, Debug)]
struct EmbeddingState {
    numbers: Vec<u32>,
    rows: usize,
    width: usize,
}

#[derive(Debug)]
struct EmbeddingStep;

impl Backward<Flex, 1> for EmbeddingStep {
    type State = EmbeddingState;

    fn backward(self, ops: Ops<EmbeddingState, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy: Flat = grads.consume::<Flex>(&ops.node).to_contiguous();
        let EmbeddingState { numbers, rows, width } = &ops.state;
        let mut dw = vec![0.0; rows * width];
        // In the order of the batch, so that the sums do not depend on the number of threads.
        for (number, dy) in numbers.iter().zip(values(&dy).chunks_exact(*width)) {
            let to = &mut dw[*number as usize * width..][..*width];
            to.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
        }
        register(grads, &ops, [tensor(dw, [*rows, *width])]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{equal, leaves};
    use super::*;

    const ROWS: usize = 70;
    const WIDTH: usize = 17;

    type Lookup = fn(Tensor<2>, Tensor<2, Int>) -> Tensor<3>;

    fn apply(lookup: Lookup) -> impl Fn(&[Tensor<1>]) -> Tensor<3> {
        move |given| {
            let weight = given[0].clone().reshape([ROWS, WIDTH]);
            // Some rows several times, others never.
            let numbers: Vec<i64> = (0..60).map(|i| (i * i % 67) as i64).collect();
            let index = Tensor::<1, Int>::from_ints(&numbers[..], &weight.device()).reshape([4, 15]);
            lookup(weight, index)
        }
    }

    #[test]
    fn values_and_gradients_have_the_bits_of_burns() {
        equal("embedding", &leaves([ROWS * WIDTH]), 0.0, apply(embedding), apply(burn_ops::embedding));
    }

    /// As the embedding and the head of a language model.
    #[test]
    fn the_gradient_of_another_use_is_added() {
        let twice = |lookup: Lookup| {
            move |given: &[Tensor<1>]| {
                let weight = given[0].clone().reshape([ROWS, WIDTH]);
                apply(lookup)(given) * weight.slice([0..1, 0..WIDTH]).unsqueeze::<3>()
            }
        };
        equal("twice", &leaves([ROWS * WIDTH]), 0.0, twice(embedding), twice(burn_ops::embedding));
    }

    #[test]
    #[should_panic(expected = "there is no row 70 in an embedding of 70")]
    fn a_row_that_is_not_there_is_refused() {
        let weight = leaves([ROWS * WIDTH])[0].clone().reshape([ROWS, WIDTH]);
        let index = Tensor::from_ints([[70]], &weight.device());
        embedding(weight, index);
    }
}
