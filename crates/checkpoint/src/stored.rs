//! Tensors of weight files, whose values are read one tensor at a time.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::tensor::{Dtype, Named, NamedMap, TensorData, TensorMap};
use base::display;
use base::error::{Error, Result};

/// The tensors of a weight file.
pub type StoredMap = NamedMap<StoredTensor>;

/// A tensor of a weight file. Its values are in no memory until [`StoredTensor::read`].
#[derive(Clone, Debug)]
pub struct StoredTensor {
    /// Unique within a file.
    pub name: String,
    /// The type of each element.
    pub dtype: Dtype,
    /// Dimensions, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
    values: Values,
}

/// Where the values are.
#[derive(Clone, Debug)]
enum Values {
    Memory(Arc<Vec<u8>>),
    /// Little-endian and row-major, from this byte on.
    File {
        file: Arc<File>,
        path: Arc<Path>,
        at: u64,
    },
    Pytorch {
        tensor: Box<pytorch_reader::Tensor>,
        path: Arc<Path>,
    },
    /// Those of a matrix, with rows and columns exchanged.
    Transposed(Box<StoredTensor>),
    /// The rows of one below those of another.
    Rows(Vec<StoredTensor>),
}

impl Named for StoredTensor {
    fn name(&self) -> &str {
        &self.name
    }
}

impl From<TensorData> for StoredTensor {
    fn from(tensor: TensorData) -> Self {
        let TensorData { name, dtype, shape, bytes } = tensor;
        Self { name, dtype, shape, values: Values::Memory(Arc::new(bytes)) }
    }
}

impl From<TensorMap> for StoredMap {
    fn from(tensors: TensorMap) -> Self {
        tensors.map(StoredTensor::from)
    }
}

impl StoredMap {
    /// All values.
    ///
    /// # Errors
    /// As [`StoredTensor::read`].
    pub fn read(&self) -> Result<TensorMap> {
        let mut all = TensorMap::new();
        self.iter().try_for_each(|tensor| all.push(tensor.read()?))?;
        Ok(all)
    }
}

impl StoredTensor {
    /// A tensor whose bytes are in `file` from `at` on.
    pub(super) fn in_file(name: &str, dtype: Dtype, shape: Vec<usize>, (file, path, at): InFile<'_>) -> Self {
        let values = Values::File { file: file.clone(), path: path.clone(), at };
        Self { name: name.to_owned(), dtype, shape, values }
    }

    /// A tensor of the PyTorch file at `path`.
    pub(super) fn of_pytorch(
        name: String,
        dtype: Dtype,
        tensor: pytorch_reader::Tensor,
        path: &Arc<Path>,
    ) -> Self {
        let shape = tensor.shape().to_vec();
        let values = Values::Pytorch { tensor: Box::new(tensor), path: path.clone() };
        Self { name, dtype, shape, values }
    }

    /// A matrix with rows and columns exchanged; another tensor is unchanged.
    #[must_use]
    pub fn transposed(self) -> Self {
        let [rows, columns] = self.shape[..] else { return self };
        let (name, dtype, shape) = (self.name.clone(), self.dtype, vec![columns, rows]);
        Self { name, dtype, shape, values: Values::Transposed(Box::new(self)) }
    }

    /// The rows of these tensors, one below another; `None` if they are not of one shape and type.
    pub(super) fn of_rows(name: &str, parts: Vec<StoredTensor>) -> Option<Self> {
        let first = parts.first()?;
        if parts.iter().any(|part| (part.dtype, &part.shape) != (first.dtype, &first.shape)) {
            return None;
        }
        let (dtype, mut shape) = (first.dtype, first.shape.clone());
        *shape.first_mut()? *= parts.len();
        Some(Self { name: name.to_owned(), dtype, shape, values: Values::Rows(parts) })
    }

    /// The values, read now.
    ///
    /// # Errors
    /// `ErrorKind::Spec`: the file can't be read (any more).
    pub fn read(&self) -> Result<TensorData> {
        let (name, size) = (&self.name, self.dtype.size());
        let failed = |path: &Path, e: std::io::Error| {
            let (name, path, why) = (display::name(name), path.display(), display::piece(&e.to_string()));
            Error::data(format!("cannot read tensor `{name}` from {path}: {why}"))
        };
        let bytes = match &self.values {
            Values::Memory(bytes) => bytes.as_ref().clone(),
            Values::File { file, path, at } => {
                // The header was compared with the length of the file.
                let mut bytes = vec![0; self.shape.iter().product::<usize>() * size];
                file.read_exact_at(&mut bytes, *at).map_err(|e| failed(path, e))?;
                bytes
            }
            Values::Pytorch { tensor, path } => tensor.read().map_err(|e| failed(path, e))?,
            Values::Transposed(tensor) => tensor.read()?.transposed().bytes,
            Values::Rows(parts) => {
                let mut bytes = Vec::with_capacity(self.shape.iter().product::<usize>() * size);
                parts.iter().try_for_each(|part| {
                    bytes.extend_from_slice(&part.read()?.bytes);
                    Ok::<_, Error>(())
                })?;
                bytes
            }
        };
        TensorData::new(name.clone(), self.dtype, self.shape.clone(), bytes)
    }
}

/// A file, its path, and a place in it.
type InFile<'a> = (&'a Arc<File>, &'a Arc<Path>, u64);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{open_weights, read_weights, write_shards};

    fn tensor(name: &str, shape: &[usize], values: &[f32]) -> TensorData {
        TensorData::from_f32(name, shape.to_vec(), values).unwrap()
    }

    /// What is read is what the file has then, so nothing was kept of it.
    #[test]
    fn values_are_read_when_they_are_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), "{}").unwrap();
        let write = |values: [f32; 4]| {
            let all = [tensor("a", &[2], &values[..2]), tensor("b", &[1, 2], &values[2..])];
            let all = TensorMap::from_tensors(all).unwrap();
            // Each in a file of its own, with an index.
            write_shards(folder.path(), all, 8).unwrap()
        };
        let files = write([1.0, 2.0, 3.0, 4.0]);
        let stored = open_weights(folder.path()).unwrap();
        for name in &files[..2] {
            let path = folder.path().join(name);
            let mut bytes = std::fs::read(&path).unwrap();
            let last = bytes.len() - 4;
            bytes[last..].copy_from_slice(&9.0f32.to_le_bytes());
            std::fs::write(&path, bytes).unwrap();
        }
        let values = |name: &str| stored.get(name).unwrap().read().unwrap().to_f32_vec();
        assert_eq!((values("a"), values("b")), (vec![1.0, 9.0], vec![3.0, 9.0]));
        let all = read_weights(folder.path()).unwrap();
        assert_eq!(stored.read().unwrap(), all);
        for name in &files[..2] {
            std::fs::File::options().write(true).open(folder.path().join(name)).unwrap().set_len(20).unwrap();
        }
        let why = stored.get("b").unwrap().read().unwrap_err().message;
        assert!(why.starts_with("cannot read tensor `b` from /") && why.contains(&files[1]), "{why}");
    }

    #[test]
    fn matrices_are_put_together_and_transposed_when_they_are_read() {
        let parts = [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 10.0, 11.0]];
        let stored = |shape: &[usize]| parts.map(|values| tensor("part", shape, &values).into());
        let rows = StoredTensor::of_rows("all", stored(&[2, 3]).to_vec()).unwrap();
        assert_eq!((&*rows.name, &rows.shape), ("all", &vec![4, 3]));
        let transposed = rows.clone().transposed();
        assert_eq!(rows.read().unwrap().to_f32_vec(), parts.concat());
        assert_eq!(transposed.read().unwrap(), rows.read().unwrap().transposed());
        let [first, _] = stored(&[2, 3]);
        let [other, _] = stored(&[3, 2]);
        assert!(StoredTensor::of_rows("all", vec![first, other]).is_none());
        assert!(StoredTensor::of_rows("none", Vec::new()).is_none());
    }
}
