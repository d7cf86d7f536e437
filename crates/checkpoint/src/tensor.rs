//! Host tensors as plain bytes, for snapshots and weight files.
//!
//! A [`TensorData`] is a name, an element type, a shape and little-endian, row-major bytes; a [`TensorMap`] is an
//! ordered collection of them with unique names. There are no devices or Burn types here, so any thread can save, and
//! reading needs no backend.

use std::borrow::Cow;
use std::collections::HashMap;

use base::error::{Error, Result};
use base::named;

// A tensor's bytes are those of the file (little-endian) and are viewed in place.
#[cfg(target_endian = "big")]
compile_error!("checkpoints are read and written in place on little-endian machines only");

named! {
    /// Element type of a stored tensor.
    pub enum Dtype {
        F32 = "f32",
        F64 = "f64",
        F16 = "f16",
        Bf16 = "bf16",
        I64 = "i64",
        I32 = "i32",
        U8 = "u8",
        Bool = "bool",
    }
}

impl Dtype {
    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            Dtype::F64 | Dtype::I64 => 8,
            Dtype::F32 | Dtype::I32 => 4,
            Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::U8 | Dtype::Bool => 1,
        }
    }

    /// A floating-point type, which may be rounded to another.
    pub const fn is_float(self) -> bool {
        matches!(self, Dtype::F32 | Dtype::F64 | Dtype::F16 | Dtype::Bf16)
    }
}

/// A named tensor in host memory. [`TensorData::new`] checks `bytes.len() == product(shape) * dtype.size()`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorData {
    /// Unique within a file.
    pub name: String,
    /// The type of each element.
    pub dtype: Dtype,
    /// Dimensions, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
    /// Little-endian, row-major, contiguous.
    pub bytes: Vec<u8>,
}

impl TensorData {
    /// A tensor of these parts.
    ///
    /// # Errors
    /// The bytes are not as many as shape and type ask for.
    pub fn new(name: impl Into<String>, dtype: Dtype, shape: Vec<usize>, bytes: Vec<u8>) -> Result<Self> {
        let tensor = Self { name: name.into(), dtype, shape, bytes };
        match tensor.expected_bytes() {
            Some(n) if n == tensor.bytes.len() => Ok(tensor),
            _ => Err(Error::checkpoint(format!(
                "tensor `{}` of type {} and shape {:?} cannot have {} bytes",
                tensor.name,
                tensor.dtype,
                tensor.shape,
                tensor.bytes.len()
            ))),
        }
    }

    /// An f32 tensor from its values (one copy).
    pub fn from_f32(name: impl Into<String>, shape: Vec<usize>, values: &[f32]) -> Result<Self> {
        Self::new(name, Dtype::F32, shape, bytemuck::cast_slice(values).to_vec())
    }

    /// A matrix with rows and columns exchanged; another tensor is unchanged.
    #[must_use]
    pub fn transposed(mut self) -> Self {
        let [rows, columns] = self.shape[..] else { return self };
        let size = self.dtype.size();
        let element = |at: usize| &self.bytes[at * size..(at + 1) * size];
        let order = (0..columns).flat_map(|column| (0..rows).map(move |row| row * columns + column));
        self.bytes = order.flat_map(element).copied().collect();
        self.shape = vec![columns, rows];
        self
    }

    /// Number of elements (1 for a scalar).
    pub fn len(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    /// Whether a dimension is 0.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn expected_bytes(&self) -> Option<usize> {
        self.shape.iter().try_fold(self.dtype.size(), |n, &d| n.checked_mul(d))
    }

    /// The values, in place if the tensor is f32 and its bytes are aligned, else converted. f64 is rounded to nearest;
    /// integers above 2^24 lose low bits, as in a cast.
    pub fn as_f32(&self) -> Cow<'_, [f32]> {
        if self.dtype == Dtype::F32
            && let Ok(values) = bytemuck::try_cast_slice(&self.bytes)
        {
            return Cow::Borrowed(values);
        }
        let mut out = Vec::with_capacity(self.len());
        self.for_each_f64(|v| out.push(v as f32));
        Cow::Owned(out)
    }

    /// A copy of [`Self::as_f32`].
    pub fn to_f32_vec(&self) -> Vec<f32> {
        self.as_f32().into_owned()
    }

    /// Calls `f` with each element's bytes; `N` is the element's size.
    fn elements<const N: usize>(&self, mut f: impl FnMut([u8; N])) {
        let (chunks, rest) = self.bytes.as_chunks::<N>();
        debug_assert!(rest.is_empty());
        chunks.iter().for_each(|c| f(*c));
    }

    /// Calls `f` with each element as f64; exact except for i64 beyond 2^53.
    pub fn for_each_f64(&self, mut f: impl FnMut(f64)) {
        match self.dtype {
            Dtype::F32 => self.elements(|b| f(f64::from(f32::from_le_bytes(b)))),
            Dtype::F64 => self.elements(|b| f(f64::from_le_bytes(b))),
            Dtype::F16 => self.elements(|b| f(half::f16::from_le_bytes(b).to_f64())),
            Dtype::Bf16 => self.elements(|b| f(half::bf16::from_le_bytes(b).to_f64())),
            Dtype::I64 => self.elements(|b| f(i64::from_le_bytes(b) as f64)),
            Dtype::I32 => self.elements(|b| f(f64::from(i32::from_le_bytes(b)))),
            Dtype::U8 | Dtype::Bool => self.elements(|[b]| f(f64::from(b))),
        }
    }

    /// Converts to another float type, rounding to nearest even; integer and bool tensors are unchanged.
    ///
    /// # Errors
    /// If `to` is not a float type, or a finite value overflows in it.
    pub(crate) fn cast_float(&self, to: Dtype) -> Result<TensorData> {
        if !to.is_float() {
            return Err(Error::usage(format!("weights cannot be stored as {to}; choose f32, f16 or bf16")));
        }
        if !self.dtype.is_float() || self.dtype == to {
            return Ok(self.clone());
        }
        let mut bytes = Vec::with_capacity(self.len() * to.size());
        let mut overflowed = 0usize;
        let mut count =
            |from: f64, now_finite: bool| overflowed += usize::from(from.is_finite() && !now_finite);
        self.for_each_f64(|v| match to {
            Dtype::F64 => bytes.extend(v.to_le_bytes()),
            Dtype::F16 => {
                let h = half::f16::from_f32(to_odd(v));
                count(v, h.is_finite());
                bytes.extend(h.to_le_bytes());
            }
            Dtype::Bf16 => {
                let h = half::bf16::from_f32(to_odd(v));
                count(v, h.is_finite());
                bytes.extend(h.to_le_bytes());
            }
            _ => {
                let s = v as f32;
                count(v, s.is_finite());
                bytes.extend(s.to_le_bytes());
            }
        });
        if overflowed > 0 {
            let what = format!("{overflowed} values of tensor `{}` are too large for {to}", self.name);
            return Err(Error::checkpoint(what).hint("bf16 has the range of f32"));
        }
        TensorData::new(self.name.clone(), to, self.shape.clone(), bytes)
    }
}

/// An f32 that rounds to the same shorter float as `v`: what `v` has beyond it is kept in its last bit (Boldo and Melquiond 2008). `half`
/// rounds an f64 without its last 32 bits, which decide where it is just above the middle of two floats.
fn to_odd(v: f64) -> f32 {
    let nearest = v as f32;
    if f64::from(nearest) == v {
        return nearest;
    }
    let towards_zero =
        if f64::from(nearest).abs() > v.abs() { nearest.to_bits() - 1 } else { nearest.to_bits() };
    f32::from_bits(towards_zero | 1)
}

/// What has a name.
pub trait Named {
    /// Its name.
    fn name(&self) -> &str;
}

impl Named for TensorData {
    fn name(&self) -> &str {
        &self.name
    }
}

/// Tensors in host memory.
pub type TensorMap = NamedMap<TensorData>;

/// Tensors in a fixed order, with unique names.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedMap<T> {
    tensors: Vec<T>,
    index: HashMap<String, usize>,
}

impl<T> Default for NamedMap<T> {
    fn default() -> Self {
        Self { tensors: Vec::new(), index: HashMap::new() }
    }
}

impl TensorMap {
    /// The tensor's bytes, to overwrite.
    pub fn bytes_mut(&mut self, name: &str) -> Option<&mut [u8]> {
        self.index.get(name).map(|&i| self.tensors[i].bytes.as_mut_slice())
    }

    /// The bytes of each tensor, to overwrite.
    pub(crate) fn all_bytes_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.tensors.iter_mut().map(|t| t.bytes.as_mut_slice())
    }
}

impl<T: Named> NamedMap<T> {
    /// No tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// # Errors
    /// If the name already exists, or is the one that safetensors reserves.
    pub fn push(&mut self, tensor: T) -> Result<()> {
        let name = tensor.name();
        if name == "__metadata__" {
            return Err(Error::checkpoint("a tensor cannot be named `__metadata__`"));
        }
        if self.index.contains_key(name) {
            return Err(Error::checkpoint(format!("two tensors are named `{name}`")));
        }
        self.index.insert(name.to_owned(), self.tensors.len());
        self.tensors.push(tensor);
        Ok(())
    }

    /// Tensors in the order given.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn from_tensors(tensors: impl IntoIterator<Item = T>) -> Result<Self> {
        let mut map = Self::new();
        tensors.into_iter().try_for_each(|t| map.push(t))?;
        Ok(map)
    }

    /// The tensor with this name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.index.get(name).map(|&i| &self.tensors[i])
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there is no tensor.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The tensors, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.tensors.iter()
    }

    /// The tensors, in order, by value.
    pub fn into_tensors(self) -> Vec<T> {
        self.tensors
    }

    /// Each tensor made another of the same name.
    pub(super) fn map<U: Named>(self, of: impl FnMut(T) -> U) -> NamedMap<U> {
        NamedMap { tensors: self.tensors.into_iter().map(of).collect(), index: self.index }
    }
}

impl<'a, T> IntoIterator for &'a NamedMap<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.tensors.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_round_to_the_nearest_and_ties_to_even() {
        // Just above, at and below the middle of two bf16, and of two f16: of f32, and further away than f32 can say.
        for (to, half) in [(Dtype::Bf16, 2f64.powi(-8)), (Dtype::F16, 2f64.powi(-11))] {
            let above = 2.0 * half;
            for even in [1.0_f64, -1.0, 0.125, 1.25] {
                let next = even + even.signum() * above * 2f64.powi(even.abs().log2().floor() as i32);
                let between = (even + next) / 2.0;
                for (tiny, expected) in
                    [(2f64.powi(-23), next), (2f64.powi(-40), next), (0.0, even), (-2f64.powi(-40), even)]
                {
                    let v = between * (1.0 + tiny);
                    let cast = |dtype: Dtype, bytes: Vec<u8>| {
                        let tensor = TensorData::new("w", dtype, vec![1], bytes).unwrap();
                        f64::from(tensor.cast_float(to).unwrap().to_f32_vec()[0])
                    };
                    assert_eq!(cast(Dtype::F64, v.to_le_bytes().to_vec()), expected, "{v:e} in {to}");
                    if f64::from(v as f32) == v {
                        assert_eq!(
                            cast(Dtype::F32, (v as f32).to_le_bytes().to_vec()),
                            expected,
                            "{v:e} in {to}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn bytes_must_fit_shape_and_type() {
        assert!(TensorData::new("w", Dtype::F32, vec![2, 3], vec![0; 24]).is_ok());
        let e = TensorData::new("w", Dtype::F32, vec![2, 3], vec![0; 23]).unwrap_err();
        assert_eq!(e.message, "tensor `w` of type f32 and shape [2, 3] cannot have 23 bytes");
        assert!(TensorData::new("w", Dtype::U8, vec![usize::MAX, 2], vec![]).is_err());
        assert_eq!(TensorData::new("n", Dtype::I64, vec![], vec![0; 8]).unwrap().len(), 1);
    }

    #[test]
    fn every_type_converts_to_f32() {
        let values = [1.5f32, -2.0, 0.0];
        let f32s = TensorData::from_f32("w", vec![3], &values).unwrap();
        for to in [Dtype::F64, Dtype::F16, Dtype::Bf16, Dtype::F32] {
            let cast = f32s.cast_float(to).unwrap();
            assert_eq!((cast.dtype, cast.to_f32_vec()), (to, values.to_vec()));
        }
        let ints =
            TensorData::new("i", Dtype::I32, vec![2], [3i32, -4].map(i32::to_le_bytes).concat()).unwrap();
        assert_eq!(ints.to_f32_vec(), [3.0, -4.0]);
        assert_eq!(
            TensorData::new("l", Dtype::I64, vec![1], (-9i64).to_le_bytes().to_vec()).unwrap().to_f32_vec(),
            [-9.0]
        );
        let flags = TensorData::new("b", Dtype::Bool, vec![2], vec![0, 1]).unwrap();
        assert_eq!(flags.to_f32_vec(), [0.0, 1.0]);
        assert_eq!(flags.cast_float(Dtype::F16).unwrap(), flags);
    }

    #[test]
    fn rejects_values_that_overflow_f16_but_accepts_infinity() {
        let big = TensorData::from_f32("w", vec![2], &[1e6, f32::INFINITY]).unwrap();
        let e = big.cast_float(Dtype::F16).unwrap_err();
        assert!(e.message.contains("1 values of tensor `w` are too large for f16"), "{e}");
        assert!(big.cast_float(Dtype::Bf16).is_ok());
    }

    #[test]
    fn names_are_unique_and_order_is_kept() {
        let t = |n: &str| TensorData::from_f32(n, vec![1], &[1.0]).unwrap();
        let mut map = TensorMap::from_tensors([t("z"), t("a")]).unwrap();
        assert!(map.push(t("z")).is_err());
        assert!(map.push(t("__metadata__")).is_err());
        assert_eq!(map.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["z", "a"]);
        assert_eq!(map.len(), 2);
        assert!(map.get("a").is_some() && map.get("b").is_none());
    }
}
