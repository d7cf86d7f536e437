//! Memory of tensors that outlives them: activations and gradients that the backward pass has consumed become the next
//! step's tensors, so that these are neither requested from the system nor set to zero again.

use burn::backend::{BackendTypes, Flex};
use burn::tensor::TensorData;
use std::cell::RefCell;
use std::collections::HashMap;

type Flat = <Flex as BackendTypes>::FloatTensorPrimitive;

/// Elements that a thread keeps at most: 128 MiB. Buffers beyond are freed.
const KEPT: usize = 1 << 25;
/// Smaller buffers are left to the allocator.
const SMALLEST: usize = 1 << 10;

/// The kept buffers of one length.
#[derive(Default)]
struct KeptBuffers {
    buffers: Vec<Vec<f32>>,
    /// How often none was left. No more are kept: others' tensors, such as input batches, would pile up.
    misses: usize,
}

#[derive(Default)]
struct Pool {
    by_len: HashMap<usize, KeptBuffers>,
    elements: usize,
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

/// `len` elements with unspecified contents.
pub fn buffer(len: usize) -> Vec<f32> {
    if len < SMALLEST {
        return vec![0.0; len];
    }
    POOL.with_borrow_mut(|pool| {
        let kept = pool.by_len.entry(len).or_default();
        match kept.buffers.pop() {
            Some(buffer) => {
                pool.elements -= len;
                buffer
            }
            None => {
                kept.misses += 1;
                vec![0.0; len]
            }
        }
    })
}

/// Keeps a tensor's memory for [`buffer`], if nothing else holds it and buffers of its length are in demand.
pub fn recycle(tensor: Flat) {
    let len = tensor.layout().num_elements();
    if in_demand(len)
        && let Ok(values) = owned(tensor)
    {
        keep(values);
    }
}

/// Replaces `values` by as many of a tensor, with its memory, if nothing else holds that and [`buffer`] has use for the
/// old memory, or there is none. Else the tensor is returned.
pub fn exchange(tensor: Flat, values: &mut Vec<f32>) -> Result<(), Flat> {
    if values.is_empty() {
        *values = owned(tensor)?;
        return Ok(());
    }
    if tensor.layout().num_elements() != values.len() || !in_demand(values.len()) {
        return Err(tensor);
    }
    keep(std::mem::replace(values, owned(tensor)?));
    Ok(())
}

/// A tensor's memory, if nothing else holds it and no other elements are in it. Else the tensor is returned.
fn owned(tensor: Flat) -> Result<Vec<f32>, Flat> {
    let len = tensor.layout().num_elements();
    if !tensor.is_unique() || !tensor.is_contiguous() || tensor.bytes().len() != len * size_of::<f32>() {
        return Err(tensor);
    }
    let (bytes, shape, dtype) = tensor.into_data().into_parts();
    // Memory of another alignment can't be a vector without a copy.
    bytes.try_into_vec().map_err(|bytes| Flat::from_data(TensorData::from_bytes(bytes, shape, dtype)))
}

fn in_demand(len: usize) -> bool {
    let wanted = |pool: &Pool| {
        let few = pool.by_len.get(&len).is_some_and(|kept| kept.buffers.len() < kept.misses);
        few && pool.elements + len <= KEPT
    };
    len >= SMALLEST && POOL.with_borrow(wanted)
}

fn keep(values: Vec<f32>) {
    POOL.with_borrow_mut(|pool| {
        pool.elements += values.len();
        pool.by_len.entry(values.len()).or_default().buffers.push(values);
    });
}

/// Elements in this thread's pool, for tests.
#[doc(hidden)]
pub fn kept() -> usize {
    POOL.with_borrow(|pool| {
        let sum: usize = pool.by_len.values().flat_map(|kept| &kept.buffers).map(Vec::len).sum();
        assert_eq!(sum, pool.elements);
        sum
    })
}

/// How often this thread's [`buffer`] found none, for tests.
#[doc(hidden)]
pub fn misses() -> usize {
    POOL.with_borrow(|pool| pool.by_len.values().map(|kept| kept.misses).sum())
}

#[cfg(test)]
#[path = "buffers_tests.rs"]
mod tests;
