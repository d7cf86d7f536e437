//! Memory of tensors that outlives them: buffers that the backward pass has no more use for become the next step's
//! tensors. After the first step, operations neither ask the system for memory nor set any to zero.

use super::Flat;
use std::cell::RefCell;

/// Elements that a thread keeps at most: 256 MiB. Buffers beyond are freed.
const KEPT: usize = 1 << 26;
/// Smaller buffers are left to the allocator.
const SMALLEST: usize = 1 << 10;

#[derive(Default)]
struct Free {
    buffers: Vec<Vec<f32>>,
    elements: usize,
}

thread_local! {
    static FREE: RefCell<Free> = RefCell::default();
}

/// `len` elements with unspecified contents.
pub(super) fn buffer(len: usize) -> Vec<f32> {
    let kept = FREE.with_borrow_mut(|free| {
        // The newest is the likeliest to be in the cache.
        let at = free.buffers.iter().rposition(|buffer| buffer.len() == len)?;
        free.elements -= len;
        Some(free.buffers.swap_remove(at))
    });
    kept.unwrap_or_else(|| vec![0.0; len])
}

/// Keeps a tensor's memory for [`buffer`], if nobody else holds it.
pub(super) fn recycle(tensor: Flat) {
    let len = tensor.layout().num_elements();
    if len < SMALLEST || !tensor.is_unique() || !tensor.is_contiguous() {
        return;
    }
    let Ok(values) = tensor.into_data().try_into_vec::<f32>() else { return };
    FREE.with_borrow_mut(|free| {
        if values.len() == len && free.elements + len <= KEPT {
            free.elements += len;
            free.buffers.push(values);
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
            let values = vec![1.0; 5000];
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
}
