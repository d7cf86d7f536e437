//! Collectives on Burn tensors, on any device: f32, f64, f16, bf16, i32, i64 and u8. Values pass through host memory, and
//! results are not part of a graph. Ranks compare the types and the numbers of elements of their tensors, not
//! the shapes. [`ProcessGroup`]'s own methods do the same with slices.

use base::error::{Error, Result};
use burn::tensor::kind::Basic;
use burn::tensor::{DType, Tensor, TensorData};
use collectives::{ProcessGroup, ReduceOp, SliceMut};
use half::{bf16, f16};

/// Reduces the ranks' tensors, which have one shape, to one: the same bits on all ranks.
///
/// # Errors
/// A type that collectives do not have, or a failed collective or device.
pub fn all_reduce<const D: usize, K: Basic>(
    tensor: Tensor<D, K>,
    op: ReduceOp,
    group: &dyn ProcessGroup,
) -> Result<Tensor<D, K>> {
    changed(tensor, |values| Ok(group.all_reduce(values, op)?))
}

/// The tensor of `root`. The other ranks pass one of the same shape and type.
///
/// # Errors
/// As [`all_reduce`].
pub fn broadcast<const D: usize, K: Basic>(
    tensor: Tensor<D, K>,
    root: usize,
    group: &dyn ProcessGroup,
) -> Result<Tensor<D, K>> {
    changed(tensor, |values| Ok(group.broadcast(values, root)?))
}

/// The tensors of all ranks, which have one shape, by rank.
///
/// # Errors
/// As [`all_reduce`].
pub fn all_gather<const D: usize, K: Basic>(
    tensor: Tensor<D, K>,
    group: &dyn ProcessGroup,
) -> Result<Vec<Tensor<D, K>>> {
    let (world_size, rows) = (group.world_size(), tensor.dims()[0]);
    let mut own = host_data(tensor.clone())?;
    let own = values(&mut own)?;
    let all = Tensor::cat(vec![tensor; world_size], 0);
    let all = changed(all, |all| Ok(group.all_gather(own.as_ref(), all)?))?;
    Ok((0..world_size).map(|rank| all.clone().narrow(0, rank * rows, rows)).collect())
}

/// Sends a tensor to rank `to`, which receives it with [`recv`] and the same `tag`.
///
/// # Errors
/// As [`all_reduce`].
pub fn send<const D: usize, K: Basic>(
    tensor: Tensor<D, K>,
    to: usize,
    tag: u32,
    group: &dyn ProcessGroup,
) -> Result<()> {
    changed(tensor, |values| Ok(group.send(values.as_ref(), to, tag)?)).map(drop)
}

/// Receives a tensor of the shape and type of `like` from rank `from`, on the device of `like`.
///
/// # Errors
/// As [`all_reduce`].
pub fn recv<const D: usize, K: Basic>(
    like: Tensor<D, K>,
    from: usize,
    tag: u32,
    group: &dyn ProcessGroup,
) -> Result<Tensor<D, K>> {
    changed(like, |values| Ok(group.recv(values, from, tag)?))
}

/// The tensor with its values changed by `collective`.
fn changed<const D: usize, K: Basic>(
    tensor: Tensor<D, K>,
    collective: impl FnOnce(SliceMut<'_>) -> Result<()>,
) -> Result<Tensor<D, K>> {
    let (device, dtype) = (tensor.device(), tensor.dtype());
    let mut data = host_data(tensor)?;
    collective(values(&mut data)?)?;
    Ok(Tensor::from_data(data, (&device, dtype)))
}

fn host_data<const D: usize, K: Basic>(tensor: Tensor<D, K>) -> Result<TensorData> {
    tensor
        .try_into_data()
        .map_err(|e| Error::unavailable(format!("a tensor cannot be read from its device: {e}")))
}

fn values(data: &mut TensorData) -> Result<SliceMut<'_>> {
    let dtype = data.dtype();
    let values = match dtype {
        DType::F32 => data.as_mut_slice::<f32>().map(SliceMut::from),
        DType::F64 => data.as_mut_slice::<f64>().map(SliceMut::from),
        DType::F16 => data.as_mut_slice::<f16>().map(SliceMut::from),
        DType::BF16 => data.as_mut_slice::<bf16>().map(SliceMut::from),
        DType::I64 => data.as_mut_slice::<i64>().map(SliceMut::from),
        DType::I32 => data.as_mut_slice::<i32>().map(SliceMut::from),
        DType::U8 => data.as_mut_slice::<u8>().map(SliceMut::from),
        other => {
            return Err(Error::spec(format!("collectives have no tensors of type {other:?}"))
                .hint("cast it to one of f32, f64, f16, bf16, i32, i64 and u8"));
        }
    };
    values.map_err(|e| Error::unavailable(format!("a tensor of type {dtype:?} cannot be read: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::on_ranks;
    use base::error::ErrorKind;
    use burn::tensor::{Device, Int};

    fn floats(values: [[f32; 2]; 2]) -> Tensor<2> {
        Tensor::from_data(values, &Device::flex())
    }

    fn read<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.into_data().try_into_vec().unwrap()
    }

    #[test]
    fn tensors_are_reduced_broadcast_and_gathered() {
        let ranks = on_ranks(3, |group| {
            let own = group.rank() as f32;
            let tensor = floats([[own, 1.0], [2.0, -own]]);
            let sum = all_reduce(tensor.clone(), ReduceOp::Sum, &*group).unwrap();
            let last = broadcast(tensor.clone(), 2, &*group).unwrap();
            let all = all_gather(tensor, &*group).unwrap();
            (read(sum), read(last), all.into_iter().map(read).collect::<Vec<_>>())
        });
        let of = |own: f32| vec![own, 1.0, 2.0, -own];
        for (sum, last, all) in ranks {
            assert_eq!(sum, [3.0, 3.0, 6.0, -3.0]);
            assert_eq!(last, of(2.0));
            assert_eq!(all, [of(0.0), of(1.0), of(2.0)]);
        }
    }

    #[test]
    fn integers_keep_their_type() {
        let ranks = on_ranks(2, |group| {
            let own = Tensor::<1, Int>::from_data(
                [group.rank() as i64 + 5, 1 << 40],
                (&Device::flex(), DType::I64),
            );
            let largest = all_reduce(own, ReduceOp::Max, &*group).unwrap();
            (largest.dtype(), largest.into_data().try_into_vec::<i64>().unwrap())
        });
        assert_eq!(ranks, vec![(DType::I64, vec![6, 1 << 40]); 2]);
    }

    #[test]
    fn a_tensor_passes_from_rank_to_rank() {
        let ranks = on_ranks(2, |group| {
            let mine = floats([[1.0, 2.0], [3.0, 4.0]]) * (group.rank() as f32 + 1.0);
            let other = 1 - group.rank();
            if group.rank() == 0 {
                send(mine.clone(), other, 7, &*group).unwrap();
                read(recv(mine, other, 8, &*group).unwrap())
            } else {
                let received = recv(mine.clone(), other, 7, &*group).unwrap();
                send(mine + received.clone(), other, 8, &*group).unwrap();
                read(received)
            }
        });
        assert_eq!(ranks, [vec![3.0, 6.0, 9.0, 12.0], vec![1.0, 2.0, 3.0, 4.0]]);
    }

    #[test]
    fn results_of_a_tensor_with_autodiff_are_on_its_device() {
        let ranks = on_ranks(2, |group| {
            let tensor = Tensor::<1>::from_floats([2.0], &Device::flex().autodiff()).require_grad();
            let sum = all_reduce(tensor * 3.0, ReduceOp::Sum, &*group).unwrap();
            (sum.is_tracked(), sum.device().is_autodiff(), read(sum.inner()))
        });
        assert_eq!(ranks, vec![(false, true, vec![12.0]); 2]);
    }

    #[test]
    fn a_type_without_collectives_is_an_error() {
        let solo = collectives::SoloGroup::default();
        let flags = Tensor::<1, Int>::from_data([1], (&Device::flex(), DType::I16));
        let error = all_reduce(flags, ReduceOp::Max, &solo).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Spec);
        assert!(error.message.contains("I16"), "{}", error.message);
    }
}
