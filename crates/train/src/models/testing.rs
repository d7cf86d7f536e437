//! What tests of whole models share.

use super::{Input, Model};
use burn::tensor::{Gradients, Tensor};
use ddp::device::Tracked;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

pub fn read<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_into_vec().unwrap()
}

/// Returns a parameter's gradient.
type Finder = Box<dyn Fn(&Gradients) -> Vec<f32> + Send>;

fn tapped<const D: usize>(parameter: Tracked) -> (Tracked, Finder) {
    let leaf = parameter.into_tensor::<D>();
    (Tracked::from_tensor(leaf.clone()), Box::new(move |grads| read(leaf.grad(grads).unwrap())))
}

/// The loss of one step, then its gradients by trainable parameter.
pub fn gradients(
    model: &dyn Model,
    input: Input,
    loss: impl FnOnce(Tensor<2>) -> Tensor<1>,
) -> Vec<Vec<f32>> {
    let ranks: Vec<usize> = model.entries().iter().map(|entry| entry.shape.len()).collect();
    let finders = Arc::new(Mutex::new(BTreeMap::new()));
    let all = finders.clone();
    let tap = move |number, parameter| {
        let (parameter, finder) = match ranks[number] {
            1 => tapped::<1>(parameter),
            2 => tapped::<2>(parameter),
            3 => tapped::<3>(parameter),
            _ => tapped::<4>(parameter),
        };
        all.lock().unwrap().insert(number, finder);
        parameter
    };
    let loss = loss(model.forward(input, Arc::new(tap)));
    let grads = loss.backward();
    let finders = finders.lock().unwrap();
    assert_eq!(finders.len(), model.entries().iter().filter(|entry| entry.trainable()).count());
    std::iter::once(read(loss.inner())).chain(finders.values().map(|finder| finder(&grads))).collect()
}
