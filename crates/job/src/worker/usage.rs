//! What a checkpoint's use needs besides its weights, `usage.json`: the job without places and observers, the facts of its data, and how inputs become
//! samples. With it a checkpoint can be used where neither the run's folder nor the data is. A resume does not read it.

use super::data::{facts_of, opened};
use super::{RankParts, fit};
use crate::plan::{Plan, Purpose, WorldRequest};
use crate::registry::Registry;
use base::display;
use base::error::{Error, Result};
use checkpoint::Loaded;
use data::{DataFacts, Encoding, FieldFacts};
use serde::{Deserialize, Serialize};
use spec::JobTree;

/// The version that this program writes, and the newest that it reads.
const VERSION: u32 = 1;

/// The most values of one field of a sample: 1 GiB of numbers.
const MOST_VALUES: usize = 1 << 28;

/// What a model's use needs besides its weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    version: u32,
    /// The facts of the data set.
    pub facts: DataFacts,
    /// `None` if the data set does not say it.
    pub encoding: Option<Encoding>,
    /// The resolved job, as TOML, without observers, launch and places of files.
    pub spec: String,
}

impl Usage {
    /// For a checkpoint of `plan`, whose opened data has these `facts`.
    pub fn new(plan: &Plan, facts: &DataFacts, encoding: Option<Encoding>) -> Self {
        Self { version: VERSION, facts: facts.clone(), encoding, spec: plan.usage_toml() }
    }

    /// As text of `usage.json`.
    pub fn json(&self) -> Result<String> {
        let text = serde_json::to_string_pretty(self);
        text.map(|text| text + "\n")
            .map_err(|e| Error::internal(format!("what a use needs is not JSON: {e}")))
    }

    /// The usage of a checkpoint, with its job.
    ///
    /// # Errors
    /// `ErrorKind::Io`: it is of a newer version, or can't be decoded. `ErrorKind::Spec`: the job
    /// names what this program lacks.
    pub fn read(text: &str, loaded: &Loaded, registry: &Registry) -> Result<(Self, Plan)> {
        let usage = Self::parse(text, loaded)?;
        let tree = JobTree::parse(&place(loaded), &usage.spec, &[]);
        let plan = Plan::resolve(&tree, registry, WorldRequest::new(1).to(Purpose::Use))?;
        Ok((usage, plan))
    }

    /// How the samples of a checkpoint were encoded; `None` if it does not say it.
    ///
    /// # Errors
    /// As [`Usage::read`].
    pub fn encoding_of(loaded: &Loaded) -> Result<Option<Encoding>> {
        Ok(loaded
            .usage
            .as_ref()
            .map(|text| Self::parse(text, loaded))
            .transpose()?
            .and_then(|it| it.encoding))
    }

    fn parse(text: &str, loaded: &Loaded) -> Result<Self> {
        let place = place(loaded);
        let invalid = |e: serde_json::Error| Error::checkpoint(format!("{place} is invalid: {e}"));
        let UsageVersion { version } = serde_json::from_str(text).map_err(invalid)?;
        if version > VERSION {
            return Err(Error::checkpoint(format!("{place} has version {version}, from a newer ddp-run"))
                .hint(format!("this one reads up to version {VERSION}")));
        }
        let usage: Self = serde_json::from_str(text).map_err(invalid)?;
        usage.facts_are_sound().map_err(|why| Error::checkpoint(format!("{place} is invalid: {why}")))?;
        Ok(usage)
    }

    /// Whether the sizes of samples are possible: buffers are allocated by them.
    fn facts_are_sound(&self) -> Result<(), String> {
        let facts = &self.facts;
        let standard = [("input", &facts.input), ("target", &facts.target)];
        let standard = standard.into_iter().filter_map(|(name, field)| Some((name, field.as_ref()?)));
        let further = facts.fields.iter().map(|(name, field)| (name.as_str(), field));
        for (name, FieldFacts { shape, .. }) in standard.chain(further) {
            let values = shape.iter().try_fold(1usize, |n, size| n.checked_mul((*size).max(1)));
            if values.is_none_or(|n| n > MOST_VALUES) {
                return Err(format!("`{}` has the shape {}", display::name(name), display::shape(shape)));
            }
        }
        Ok(())
    }

    /// For a checkpoint of an earlier version: from the data set, which must be there.
    pub fn of_data(plan: &Plan) -> Result<Self> {
        let data = RankParts::new(plan).data;
        let mut tell = |line: &str| info!("{}", display::message(line));
        data.source.prepare(&mut tell).map_err(Error::of_data)?;
        let splits = opened(&data, None)?;
        fit::samples(data.name, &splits)?;
        Ok(Self::new(plan, &facts_of(&splits), splits.train.encoding()))
    }
}

fn place(loaded: &Loaded) -> String {
    loaded.path.join(checkpoint::USAGE_FILE).display().to_string()
}

#[derive(Deserialize)]
struct UsageVersion {
    version: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::testing::{SPEC, TestRun, plan};
    use data::FieldKind;

    #[test]
    fn a_checkpoint_tells_its_job_and_its_data() {
        let run = TestRun::new(SPEC);
        run.train(1, &[]).unwrap();
        let loaded = run.loaded();
        let text = loaded.usage.clone().expect("it is saved");
        let (usage, plan) = Usage::read(&text, &loaded, &Registry::standard()).unwrap();
        assert_eq!((plan.name.as_str(), plan.model.name.as_str()), ("run", "linear"));
        let input = usage.facts.input.as_ref().unwrap();
        assert_eq!((input.shape.as_slice(), input.kind), (&[4][..], FieldKind::Float));
        let Some(Encoding::Table(table)) = &usage.encoding else { panic!("it is one of numbers") };
        assert_eq!(table.columns.len(), 4);
        assert_eq!(Usage::of_data(&plan).unwrap().encoding, usage.encoding);
        let newer = text.replacen("\"version\": 1", "\"version\": 2", 1);
        let error = Usage::read(&newer, &loaded, &Registry::standard()).unwrap_err();
        assert!(error.message.contains("has version 2, from a newer ddp-run"), "{error}");
    }

    /// Each of these sizes would be allocated: a panic, or an abort of the process.
    #[test]
    fn forged_sizes_are_refused_before_anything_is_allocated() {
        use crate::worker::Predictor;
        use base::error::ErrorKind;
        use data::{ColumnKind, ImageEncoding};
        use ddp::device::ComputeDevice;
        let run = TestRun::new(SPEC);
        run.train(1, &[]).unwrap();
        let mut loaded = run.loaded();
        let registry = Registry::standard();
        let text = loaded.usage.take().unwrap();
        let (usage, plan) = Usage::read(&text, &loaded, &registry).unwrap();
        let refused = |change: &dyn Fn(&mut Usage)| {
            let mut forged = usage.clone();
            change(&mut forged);
            let used = Usage::read(&forged.json().unwrap(), &loaded, &registry);
            let predictor = used.and_then(|(usage, _)| {
                Predictor::new(&RankParts::new(&plan), &usage, &loaded, true, ComputeDevice::Cpu)
            });
            predictor.err().expect("it is refused")
        };
        let field = |shape: &[usize], kind| Some(FieldFacts { shape: shape.to_vec(), kind });
        let huge = usize::MAX >> 4;
        for classes in [2, 1 << 36, huge] {
            let error = refused(&|forged| forged.facts.target = field(&[], FieldKind::Index(classes)));
            assert_eq!(error.kind, ErrorKind::Io, "{classes}: {error}");
        }
        for shape in [&[huge][..], &[1 << 20, 1 << 20], &[huge, huge, 16], &[huge, 0]] {
            for name in ["input", "target"] {
                let error = refused(&|forged| {
                    let of = if name == "input" { &mut forged.facts.input } else { &mut forged.facts.target };
                    *of = field(shape, FieldKind::Float);
                });
                assert_eq!(error.kind, ErrorKind::Io, "{error}");
                assert!(
                    error.message.contains(&format!("usage.json is invalid: `{name}` has the shape")),
                    "{error}"
                );
            }
        }
        let encoded = |encoding: Encoding| refused(&|forged| forged.encoding = Some(encoding.clone()));
        let (channels, size) = (3, huge);
        let (mean, std, classes) = (vec![0.0], vec![1.0; 3], Vec::new());
        let images = Encoding::Images(ImageEncoding {
            channels,
            size,
            mean,
            std,
            resize: Default::default(),
            interpolation: Default::default(),
            classes,
            number: None,
        });
        assert!(encoded(images).message.contains("1 means and 3 deviations for 3 channels"));
        let Some(Encoding::Table(mut table)) = usage.encoding.clone() else { panic!("it is one of numbers") };
        table.blanks = data::Blanks::Mean;
        let (categories, fill) = (vec!["a".to_owned()], vec![1.0; 9]);
        table.columns[0].kind = ColumnKind::Category { categories, fill };
        assert!(
            encoded(Encoding::Table(table)).message.contains("9 numbers for an empty cell of 1 categories")
        );
    }

    #[test]
    fn a_checkpoint_tells_no_places_and_no_observers_and_needs_none() {
        let spec = "name = \"run\"\nbatch_size = 8\n[model]\nname = \"linear\"\npretrained = \"/secret/w.safetensors\"\n\
             [dataset]\nname = \"csv\"\npath = \"/secret/t.csv\"\nurl = \"https://me:secret@host/a/t.csv?secret=1\"\n\
             target = \"y\"\ncategories = { x = [\"/a\", \"b/c\"] }\n\
             [optimizer]\nname = \"sgd\"\nlr = 0.05\n[checkpoint]\nbest = \"train.loss\"\n\
             [[observer]]\nname = \"exec\"\ncommand = [\"send\", \"secret\"]\n[metrics]\nsinks = [\"csv\"]\n";
        let whole = plan(spec, &[], 1);
        let usage = Usage::new(&whole, &DataFacts::default(), None);
        for absent in ["secret", "observer", "sinks", "[launch]"] {
            assert!(!usage.spec.contains(absent), "{absent} is in it:\n{}", usage.spec);
        }
        for there in ["\"t.csv\"", "\"w.safetensors\"", "https://host/a/t.csv\"", "\"/a\"", "\"b/c\""] {
            assert!(usage.spec.contains(there), "{there} is not in it:\n{}", usage.spec);
        }
        let read = plan(&usage.spec, &[], 1);
        assert_eq!((&read.name, read.checkpoint.best), (&whole.name, whole.checkpoint.best));
        assert_eq!((read.table("model")["name"].as_str(), read.observers.len()), (Some("linear"), 0));
    }
}
