//! Memory of tensors that outlives them: activations and gradients that the backward pass has consumed become the next
//! step's tensors, so that these are neither requested from the system nor set to zero again.

use super::Flat;
use std::cell::RefCell;
use std::collections::HashMap;

/// Elements that a thread keeps at most: 256 MiB. Buffers beyond are freed.
const KEPT: usize = 1 << 26;
/// Smaller buffers are left to the allocator.
const SMALLEST: usize = 1 << 10;

/// The kept buffers of one length.
#[derive(Default)]
struct Kept {
    buffers: Vec<Vec<f32>>,
    /// How often none was left. No more are kept: others' tensors, such as input batches, would pile up.
    misses: usize,
}

#[derive(Default)]
struct Pool {
    by_len: HashMap<usize, Kept>,
    elements: usize,
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

/// `len` elements with unspecified contents.
pub(super) fn buffer(len: usize) -> Vec<f32> {
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
pub(crate) fn recycle(tensor: Flat) {
    let len = tensor.layout().num_elements();
    if len < SMALLEST || !tensor.is_unique() || !tensor.is_contiguous() {
        return;
    }
    POOL.with_borrow_mut(|pool| {
        let Some(kept) = pool.by_len.get_mut(&len) else { return };
        if kept.buffers.len() >= kept.misses || pool.elements + len > KEPT {
            return;
        }
        // Memory of another length or alignment can't be kept without a copy.
        if tensor.bytes().len() != len * size_of::<f32>() {
            return;
        }
        let (bytes, ..) = tensor.into_data().into_parts();
        if let Ok(values) = bytes.try_into_vec::<f32>() {
            pool.elements += len;
            kept.buffers.push(values);
        }
    });
}

#[cfg(test)]
#[path = "buffers_tests.rs"]
mod tests;
