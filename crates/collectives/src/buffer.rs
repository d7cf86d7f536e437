//! Typed views of the memory that a collective reads and writes: the element types, their wire codes, and the guarantee
//! that a view's bytes are whole, aligned elements. Nothing is copied.

use base::named;
use half::{bf16, f16};

named! {
    /// The element types that collectives carry. Codes on the wire are positions: append only.
    #[allow(missing_docs, reason = "their names say it")]
    pub enum DType {
        F32 = "f32",
        F64 = "f64",
        F16 = "f16",
        BF16 = "bf16",
        I32 = "i32",
        I64 = "i64",
        U8 = "u8",
    }
}

impl DType {
    /// Size of one element in bytes, which is also its alignment.
    pub const fn size(self) -> usize {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::U8 => 1,
        }
    }

    /// Whether this is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64 | DType::F16 | DType::BF16)
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that collectives carry: plain data for which every bit pattern is valid.
pub trait Element: bytemuck::Pod + Send + Sync + sealed::Sealed {
    /// The element type as a value.
    const DTYPE: DType;
}

macro_rules! element {
    ($($t:ty => $d:ident),*) => {$(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const DTYPE: DType = DType::$d;
        }
    )*};
}
element!(f32 => F32, f64 => F64, f16 => F16, bf16 => BF16, i32 => I32, i64 => I64, u8 => U8);

/// Read-only elements. Converts from `&[T]`: `(&v[..]).into()`.
#[derive(Clone, Copy, Debug)]
pub struct SliceRef<'a> {
    dtype: DType,
    bytes: &'a [u8],
}

/// Mutable elements. Converts from `&mut [T]`: `(&mut v[..]).into()`.
#[derive(Debug)]
pub struct SliceMut<'a> {
    dtype: DType,
    bytes: &'a mut [u8],
}

/// Whether `bytes` consists of whole, aligned elements of `dtype`.
fn fits(dtype: DType, bytes: &[u8]) -> bool {
    bytes.len().is_multiple_of(dtype.size()) && bytes.as_ptr().addr().is_multiple_of(dtype.size())
}

impl<'a> SliceRef<'a> {
    /// Returns `None` unless `bytes` consists of whole, aligned elements of `dtype`.
    pub fn from_bytes(dtype: DType, bytes: &'a [u8]) -> Option<Self> {
        fits(dtype, bytes).then_some(Self { dtype, bytes })
    }
    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// The underlying bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }
    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl<'a> SliceMut<'a> {
    /// Returns `None` unless `bytes` consists of whole, aligned elements of `dtype`.
    pub fn from_bytes(dtype: DType, bytes: &'a mut [u8]) -> Option<Self> {
        fits(dtype, bytes).then_some(Self { dtype, bytes })
    }
    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// The underlying bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }
    /// The underlying bytes, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }
    /// The underlying bytes, with the lifetime of the borrow.
    pub fn into_bytes(self) -> &'a mut [u8] {
        self.bytes
    }
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }
    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
    /// The same elements with a shorter lifetime, so that one view serves several calls.
    pub fn reborrow(&mut self) -> SliceMut<'_> {
        SliceMut { dtype: self.dtype, bytes: self.bytes }
    }
    /// The same elements, read-only.
    pub fn as_ref(&self) -> SliceRef<'_> {
        SliceRef { dtype: self.dtype, bytes: self.bytes }
    }
}

impl<'a, T: Element> From<&'a [T]> for SliceRef<'a> {
    fn from(values: &'a [T]) -> Self {
        Self { dtype: T::DTYPE, bytes: bytemuck::cast_slice(values) }
    }
}

impl<'a, T: Element> From<&'a mut [T]> for SliceMut<'a> {
    fn from(values: &'a mut [T]) -> Self {
        Self { dtype: T::DTYPE, bytes: bytemuck::cast_slice_mut(values) }
    }
}

impl<'a, T: Element> From<&'a mut Vec<T>> for SliceMut<'a> {
    fn from(values: &'a mut Vec<T>) -> Self {
        values.as_mut_slice().into()
    }
}

impl<'a, T: Element> From<&'a Vec<T>> for SliceRef<'a> {
    fn from(values: &'a Vec<T>) -> Self {
        values.as_slice().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_count_elements_and_share_memory() {
        let mut v = vec![1.0f64, 2.0, 3.0];
        let mut view = SliceMut::from(&mut v);
        assert_eq!((view.dtype(), view.len(), view.bytes().len()), (DType::F64, 3, 24));
        view.reborrow().bytes_mut()[..8].copy_from_slice(&7.0f64.to_ne_bytes());
        assert_eq!(view.as_ref().len(), 3);
        assert_eq!(v[0], 7.0);
    }

    #[test]
    fn bytes_that_are_not_whole_aligned_elements_are_rejected() {
        let mut words = [0u64; 4];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        assert!(SliceRef::from_bytes(DType::F32, &bytes[..12]).is_some());
        assert!(SliceRef::from_bytes(DType::F32, &bytes[..13]).is_none());
        assert!(SliceRef::from_bytes(DType::F32, &bytes[1..13]).is_none());
        assert!(SliceMut::from_bytes(DType::F16, &mut bytes[1..3]).is_none());
        assert!(SliceMut::from_bytes(DType::U8, &mut bytes[1..4]).is_some());
    }
}
