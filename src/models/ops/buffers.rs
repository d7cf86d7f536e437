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

/// Keeps a tensor's memory for [`buffer`], if nobody else holds it and buffers of its length are in demand.
pub(super) fn recycle(tensor: Flat) {
    let len = tensor.layout().num_elements();
    if len < SMALLEST || !tensor.is_unique() || !tensor.is_contiguous() {
        return;
    }
    POOL.with_borrow_mut(|pool| {
        let Some(kept) = pool.by_len.get_mut(&len) else { return };
        if kept.buffers.len() >= kept.misses || pool.elements + len > KEPT {
            return;
        }
        let Ok(values) = tensor.into_data().try_into_vec::<f32>() else { return };
        if values.len() == len {
            pool.elements += len;
            kept.buffers.push(values);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::tensor;
    use super::*;

    #[test]
    fn memory_is_used_again_unless_somebody_holds_it() {
        std::thread::spawn(|| {
            let values = buffer(5000);
            let address = values.as_ptr();
            let first = tensor(values, [50, 100]);
            let other = first.clone();
            recycle(first);
            let shared = buffer(5000);
            assert_ne!(shared.as_ptr(), address);
            recycle(other);
            assert_eq!(buffer(4999).len(), 4999);
            let (again, further) = (buffer(5000), buffer(5000));
            assert_eq!((again.as_ptr(), again.len()), (address, 5000));
            assert_ne!(further.as_ptr(), address);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn tensors_that_no_operation_asked_for_are_not_kept() {
        std::thread::spawn(|| {
            let kept = || POOL.with_borrow(|pool| pool.elements);
            for _ in 0..10 {
                recycle(tensor(vec![1.0; 3000], [3000]));
            }
            assert_eq!(kept(), 0);
            drop(buffer(3000));
            for _ in 0..10 {
                recycle(tensor(vec![1.0; 3000], [3000]));
            }
            assert_eq!(kept(), 3000);
        })
        .join()
        .unwrap();
    }
}
