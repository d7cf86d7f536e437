//! The names and layouts that a model's tensors have in files of Hugging Face's transformers, where they are not its own.

use super::stored::{StoredMap, StoredTensor};
use super::tensor::{TensorData, TensorMap};
use base::error::Result;

/// How a file of transformers has a tensor of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HubTensor {
    /// Under this name.
    Same(String),
    /// A matrix under this name, with rows and columns exchanged.
    Transposed(String),
    /// In three tensors of equally many rows, one below another: the queries, keys and values of an attention.
    Thirds([String; 3]),
}

/// The name of a base model in one with a head; files of the base model alone do not have it.
const BASES: [&str; 3] = ["vit.", "resnet.", "transformer."];

impl HubTensor {
    /// What a model has that transformers has under the same names.
    pub fn same(name: &str) -> Self {
        Self::Same(name.to_owned())
    }

    /// The names in the file, with their shapes there.
    pub fn named(self, shape: &[usize]) -> Vec<(String, Vec<usize>)> {
        match self {
            Self::Same(name) => vec![(name, shape.to_vec())],
            Self::Transposed(name) => vec![(name, shape.iter().rev().copied().collect())],
            Self::Thirds(names) => {
                let mut third = shape.to_vec();
                third[0] /= 3;
                names.map(|name| (name, third.clone())).into()
            }
        }
    }

    fn of_own(self, own: TensorData) -> Result<Vec<TensorData>> {
        if let Self::Same(name) = self {
            return Ok(vec![TensorData { name, ..own }]);
        }
        let named = self.clone().named(&own.shape);
        let own = if matches!(self, Self::Transposed(_)) { own.transposed() } else { own };
        let bytes = own.bytes.len() / named.len();
        let parts = named.into_iter().enumerate();
        let part = |(at, (name, shape)): (usize, (String, Vec<usize>))| {
            TensorData::new(name, own.dtype, shape, own.bytes[at * bytes..][..bytes].to_vec())
        };
        parts.map(part).collect()
    }

    fn names(&self) -> &[String] {
        match self {
            Self::Same(name) | Self::Transposed(name) => std::slice::from_ref(name),
            Self::Thirds(names) => names,
        }
    }

    /// The model's tensor from those of the file; `None` if these are no parts of one.
    fn to_own(&self, own: &str, mut parts: Vec<StoredTensor>) -> Option<StoredTensor> {
        match self {
            Self::Thirds(_) => StoredTensor::of_rows(own, parts),
            Self::Same(_) | Self::Transposed(_) => {
                let mut whole = parts.pop()?;
                whole.name = own.to_owned();
                Some(if matches!(self, Self::Transposed(_)) { whole.transposed() } else { whole })
            }
        }
    }
}

/// The tensors as transformers has them.
///
/// # Errors
/// Two of them have one name there.
pub fn to_hub(own: TensorMap, of: &dyn Fn(&str) -> HubTensor) -> Result<TensorMap> {
    let mut all = TensorMap::new();
    for tensor in own.into_tensors() {
        of(&tensor.name).of_own(tensor)?.into_iter().try_for_each(|part| all.push(part))?;
    }
    Ok(all)
}

/// The tensors of a file, those of transformers with the names and layouts of the model, whose tensors are `own`. What the file has under
/// the model's own name stays, and so does what has no whole counterpart.
///
/// # Errors
/// Two tensors of the file have one name.
pub fn from_hub(file: StoredMap, own: &[&str], of: &dyn Fn(&str) -> HubTensor) -> Result<StoredMap> {
    let in_file = |name: &String| {
        let without = BASES.iter().find_map(|base| name.strip_prefix(base));
        let mut names = [Some(name.as_str()), without].into_iter().flatten();
        let exact = names.find_map(|name| file.get(name));
        // Behind the names of modules and dictionaries around the model, such as those of DDP.
        let behind = || {
            let mut all = file.iter().filter(|tensor| {
                tensor.name.strip_suffix(name.as_str()).is_some_and(|before| before.ends_with('.'))
            });
            all.next().filter(|_| all.next().is_none())
        };
        exact.or_else(behind).map(|tensor| tensor.name.clone())
    };
    let mut found = Vec::new();
    let mut used = std::collections::HashSet::new();
    for name in own.iter().filter(|name| file.get(name).is_none()) {
        let hub = of(name);
        let Some(names) = hub.names().iter().map(in_file).collect::<Option<Vec<String>>>() else { continue };
        let parts = names.iter().filter_map(|name| file.get(name).cloned()).collect();
        let Some(tensor) = hub.to_own(name, parts) else { continue };
        used.extend(names);
        found.push(tensor);
    }
    let rest = file.into_tensors().into_iter().filter(|tensor| !used.contains(&tensor.name));
    StoredMap::from_tensors(rest.chain(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> HubTensor {
        match name {
            "in.weight" => HubTensor::Thirds(["q", "k", "v"].map(|part| format!("vit.{part}.weight"))),
            "in.bias" => HubTensor::Thirds(["q", "k", "v"].map(|part| format!("vit.{part}.bias"))),
            "out" => HubTensor::Transposed("vit.out.weight".to_owned()),
            "steps" => HubTensor::Same("vit.steps".to_owned()),
            name => HubTensor::same(name),
        }
    }

    /// With all values.
    fn from_hub(file: TensorMap, own: &[&str]) -> TensorMap {
        super::from_hub(file.into(), own, &of).unwrap().read().unwrap()
    }

    const OWN: [&str; 5] = ["in.weight", "in.bias", "out", "head", "steps"];

    fn own() -> TensorMap {
        let shapes: [&[usize]; 5] = [&[6, 2], &[3], &[2, 3], &[1], &[]];
        let tensor = |(name, shape): (&str, &[usize])| {
            let count: usize = shape.iter().product();
            let values: Vec<f32> = (0..count).map(|i| i as f32).collect();
            TensorData::from_f32(name, shape.to_vec(), &values).unwrap()
        };
        TensorMap::from_tensors(OWN.into_iter().zip(shapes).map(tensor)).unwrap()
    }

    #[test]
    fn matrices_are_cut_and_transposed_and_put_together_again() {
        let hub = to_hub(own(), &of).unwrap();
        let values = |name: &str| hub.get(name).unwrap().to_f32_vec();
        assert_eq!(hub.len(), 9);
        assert_eq!(values("vit.k.weight"), [4.0, 5.0, 6.0, 7.0]);
        assert_eq!(
            (hub.get("vit.v.bias").unwrap().shape.as_slice(), values("vit.v.bias")),
            (&[1][..], vec![2.0])
        );
        assert_eq!(hub.get("vit.out.weight").unwrap().shape, [3, 2]);
        assert_eq!(values("vit.out.weight"), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        for tensor in own().iter() {
            for (name, shape) in of(&tensor.name).named(&tensor.shape) {
                assert_eq!(hub.get(&name).unwrap().shape, shape);
            }
        }
        let back = from_hub(hub.clone(), &OWN);
        for tensor in own().iter() {
            assert_eq!(back.get(&tensor.name), Some(tensor));
        }
        // Of the model without its head.
        let base = hub.into_tensors().into_iter().map(|mut tensor| {
            tensor.name = tensor.name.trim_start_matches("vit.").to_owned();
            tensor
        });
        let back = from_hub(TensorMap::from_tensors(base).unwrap(), &OWN);
        assert_eq!(back.get("in.weight"), own().get("in.weight"));
        assert_eq!(back.len(), 5);
        // Wrapped, as DDP and Lightning save it.
        let wrapped = to_hub(own(), &of).unwrap().into_tensors().into_iter().map(|mut tensor| {
            tensor.name = format!("state_dict.module.{}", tensor.name);
            tensor
        });
        let back = from_hub(TensorMap::from_tensors(wrapped).unwrap(), &OWN);
        assert_eq!(back.get("in.weight"), own().get("in.weight"));
    }

    #[test]
    fn what_is_no_part_of_a_tensor_keeps_its_name() {
        let without_one = |left_out: &str, changed: &dyn Fn(&mut TensorData)| {
            let all = to_hub(own(), &of).unwrap().into_tensors().into_iter();
            let all = all.filter(|tensor| tensor.name != left_out).map(|mut tensor| {
                changed(&mut tensor);
                tensor
            });
            from_hub(TensorMap::from_tensors(all).unwrap(), &OWN)
        };
        let missing = without_one("vit.k.weight", &|_| {});
        assert!(missing.get("in.weight").is_none() && missing.get("vit.q.weight").is_some());
        let reshaped = without_one("", &|tensor| {
            if tensor.name == "vit.k.weight" {
                tensor.shape = vec![1, 4];
            }
        });
        assert!(reshaped.get("in.weight").is_none() && reshaped.get("vit.k.weight").is_some());
        // A file of the model itself is as it was.
        assert_eq!(from_hub(own(), &OWN), own());
    }
}
