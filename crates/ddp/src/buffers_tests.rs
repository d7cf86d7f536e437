//! The pool of one thread; each test has a thread of its own, whose pool begins empty.

use super::*;
use burn::tensor::{Shape, TensorData};

fn tensor(values: Vec<f32>, dims: impl Into<Shape>) -> Flat {
    Flat::from_data(TensorData::new(values, dims))
}

fn values(tensor: &Flat) -> &[f32] {
    tensor.storage::<f32>()
}

fn on_a_new_thread(test: impl FnOnce() + Send + 'static) {
    std::thread::spawn(test).join().unwrap();
}

/// Makes room in the pool for `count` buffers of `len`.
fn ask(count: usize, len: usize) {
    (0..count).for_each(|_| drop(buffer(len)));
}

#[test]
fn memory_is_used_again_unless_it_is_shared() {
    on_a_new_thread(|| {
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
    });
}

#[test]
fn a_shared_tensor_keeps_its_values() {
    on_a_new_thread(|| {
        ask(2, 3000);
        let tensor = tensor(vec![7.0; 3000], [3000]);
        let view = tensor.reshape(Shape::from([30, 100]));
        recycle(tensor);
        assert_eq!(kept(), 0);
        buffer(3000).fill(1.0);
        assert!(values(&view).iter().all(|v| *v == 7.0));
    });
}

#[test]
fn values_are_exchanged_for_a_tensors_with_their_memory() {
    on_a_new_thread(|| {
        ask(1, 3000);
        let new = vec![2.0; 3000];
        let mut kept_values = vec![1.0; 3000];
        let (old, address) = (kept_values.as_ptr(), new.as_ptr());
        exchange(tensor(new, [30, 100]), &mut kept_values).unwrap();
        assert_eq!((kept_values.as_ptr(), &kept_values), (address, &vec![2.0; 3000]));
        let again = buffer(3000);
        assert_eq!(again.as_ptr(), old);
    });
}

#[test]
fn a_tensor_is_returned_if_there_is_no_use_for_the_exchange() {
    on_a_new_thread(|| {
        let returned = |tensor: Flat| {
            let (mut kept_values, shape) = (vec![1.0; 2000], tensor.layout().shape().clone());
            let returned = exchange(tensor, &mut kept_values).unwrap_err();
            assert_eq!((&kept_values, kept()), (&vec![1.0; 2000], 0));
            assert_eq!(returned.layout().shape(), &shape);
            values(&returned).to_vec()
        };
        assert_eq!(returned(tensor(vec![3.0; 2000], [2000])), [3.0; 2000], "no operation asked for it");
        ask(2, 2000);
        let shared = tensor(vec![3.0; 2000], [2000]);
        assert_eq!(returned(shared.clone()), [3.0; 2000], "shared");
        // Burn makes its zeros with the largest alignment, which a vector of f32 does not have.
        let aligned = Flat::zeros(Shape::from([20, 100]), burn::tensor::DType::F32);
        assert_eq!(returned(aligned), [0.0; 2000], "aligned");
        assert_eq!(returned(tensor(vec![3.0; 2001], [2001])), [3.0; 2001], "another length");
    });
}

#[test]
fn tensors_that_no_operation_asked_for_are_not_kept() {
    on_a_new_thread(|| {
        let recycle_ten = || (0..10).for_each(|_| recycle(tensor(vec![1.0; 3000], [3000])));
        recycle_ten();
        assert_eq!(kept(), 0);
        ask(2, 3000);
        recycle_ten();
        assert_eq!(kept(), 2 * 3000);
    });
}

#[test]
fn small_tensors_are_left_to_the_allocator() {
    on_a_new_thread(|| {
        for len in [0, 1, SMALLEST - 1] {
            ask(1, len);
            recycle(tensor(vec![1.0; len], [len]));
            assert_eq!((kept(), buffer(len).len()), (0, len));
        }
        ask(1, SMALLEST);
        recycle(tensor(vec![1.0; SMALLEST], [SMALLEST]));
        assert_eq!(kept(), SMALLEST);
    });
}

/// To keep such memory, all of it would have to be copied.
#[test]
fn memory_that_is_not_a_vector_of_its_length_is_not_kept() {
    on_a_new_thread(|| {
        ask(8, 2000);
        let recycle_view = |len, view: fn(Flat) -> Flat| {
            let view = view(tensor(vec![1.0; len], [len]));
            assert!(view.is_unique() && view.layout().num_elements() == 2000);
            recycle(view);
        };
        recycle_view(3000, |whole| whole.narrow(0, 0, 2000));
        recycle_view(3000, |whole| whole.narrow(0, 1000, 2000));
        recycle_view(2000, |whole| whole.reshape(Shape::from([20, 100])).transpose(0, 1));
        recycle(Flat::from_data(TensorData::new(vec![1.0f64; 2000], [2000])));
        // Burn makes its zeros with the largest alignment, which a vector of f32 does not have.
        recycle(Flat::zeros(Shape::from([2000]), burn::tensor::DType::F32));
        assert_eq!(kept(), 0);
        recycle(tensor(vec![1.0; 2000], [2000]));
        assert_eq!(kept(), 2000);
    });
}

/// Zeros that nobody touches take no memory.
#[test]
fn buffers_beyond_the_cap_are_freed() {
    on_a_new_thread(|| {
        let half = KEPT / 2;
        ask(3, half);
        ask(1, SMALLEST);
        recycle(tensor(vec![0.0; half], [half]));
        recycle(tensor(vec![0.0; half], [half]));
        assert_eq!(kept(), KEPT);
        recycle(tensor(vec![0.0; half], [half]));
        recycle(tensor(vec![0.0; SMALLEST], [SMALLEST]));
        assert_eq!(kept(), KEPT);
        drop(buffer(half));
        recycle(tensor(vec![0.0; SMALLEST], [SMALLEST]));
        assert_eq!(kept(), half + SMALLEST);
    });
}

#[test]
fn each_thread_has_its_own_pool() {
    on_a_new_thread(|| {
        ask(1, 3000);
        recycle(tensor(vec![1.0; 3000], [3000]));
        on_a_new_thread(|| assert_eq!(kept(), 0));
        assert_eq!(kept(), 3000);
    });
}
