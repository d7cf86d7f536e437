//! What tests of data sets use, here and in other crates.

#[cfg(test)]
mod files;

#[cfg(test)]
pub use files::*;

/// Configures a data set from the lines of its table, as the plan does.
pub fn configure(
    kind: &dyn super::DatasetKind,
    table: &str,
) -> Result<std::sync::Arc<dyn super::DatasetSource>, String> {
    let text = format!("[dataset]\n{table}\n");
    let job = spec::JobTree::parse("job.toml", &text, &[]);
    let read = job.read(|fields| fields.table("dataset").map(|mut fields| kind.configure(&mut fields)));
    read.map(|(source, _)| source.unwrap()).map_err(|e| e.to_string())
}

/// One sample of a data set: its input and target as floats.
pub fn sample(set: &dyn super::Dataset, index: usize, epoch: u64) -> (Vec<f64>, Vec<f64>) {
    use super::{FieldData, FieldFacts, FieldKind, FieldMut, SampleKey, SampleMut};
    let room = |facts: &FieldFacts| {
        let n = facts.shape.iter().product();
        match facts.kind {
            FieldKind::Float => FieldData::Float(vec![f32::NAN; n]),
            FieldKind::Index(_) => FieldData::Index(vec![-1; n]),
        }
    };
    fn view(data: &mut FieldData) -> FieldMut<'_> {
        match data {
            FieldData::Float(v) => FieldMut::Float(v),
            FieldData::Index(v) => FieldMut::Index(v),
            FieldData::Bytes(_) => unreachable!("no kind of field"),
        }
    }
    let floats = |data: FieldData| match data {
        FieldData::Float(v) => v.into_iter().map(f64::from).collect(),
        FieldData::Index(v) => v.into_iter().map(|i| i as f64).collect(),
        FieldData::Bytes(v) => v.into_iter().map(f64::from).collect(),
    };
    let (mut input, mut target) = (room(&set.input()), room(&set.target()));
    let key = SampleKey { seed: 1, epoch, sample: index as u64 };
    set.write(key, SampleMut::new(view(&mut input), view(&mut target))).unwrap();
    (floats(input), floats(target))
}

/// A value of a case of tests/reference/*.json.
pub fn part<T: serde::de::DeserializeOwned>(of: &serde_json::Value, key: &str) -> T {
    serde_json::from_value(of[key].clone()).unwrap()
}
