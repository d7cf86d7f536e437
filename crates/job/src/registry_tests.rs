//! Plans of specs whose data sets the registry holds.

use super::Registry;
use crate::plan::Plan;
use crate::plan::testing::resolved;
use base::error::{Error, Result};
use data::{DataFacts, DatasetSource, Splits};
use schemars::JsonSchema;

#[derive(serde::Deserialize, JsonSchema)]
struct Keys {
    samples: usize,
    #[allow(dead_code, reason = "there is nothing to open")]
    root: Option<String>,
}

#[derive(Debug)]
struct Source(usize);

impl DatasetSource for Source {
    fn facts(&self) -> DataFacts {
        DataFacts { train: Some(self.0), ..DataFacts::default() }
    }
    fn open(&self) -> Result<Splits> {
        Err(Error::data("there are none"))
    }
}

fn resolve(keys: &str) -> Result<Plan, String> {
    let registry = Registry::standard().dataset("own", |keys: Keys| Source(keys.samples));
    let spec = format!(
        "name = \"x\"\nbatch_size = 4\n[model]\nname = \"linear\"\n[dataset]\nname = \"own\"\n{keys}\n\
         [optimizer]\nname = \"sgd\"\nlr = 0.1\n"
    );
    resolved(&registry, &spec, &[], 1)
}

#[test]
fn a_custom_source_receives_its_keys_and_provides_facts() {
    let plan = resolve("samples = 24\nshuffle = false").unwrap();
    assert_eq!((plan.dataset.facts.train, plan.batch.steps_per_epoch), (Some(24), Some(6)));
    assert!(!plan.loader.shuffle);
    let hash = |keys| resolve(keys).unwrap().hash;
    assert_eq!(hash("samples = 24\nroot = \"a\""), hash("samples = 24\nroot = \"b\""));
    assert_ne!(hash("samples = 24"), hash("samples = 25"));
}

#[test]
fn plan_hash_is_independent_of_data_location() {
    for (name, places, more) in [
        ("cifar10", &["root", "cache", "url"][..], ""),
        ("tinyshakespeare", &["path", "cache", "url"], ""),
        ("california-housing", &["path", "cache", "url"], ""),
        ("csv", &["path", "cache", "url"], "target = 'y'"),
        ("image-folder", &["root", "cache"], ""),
        ("image-csv", &["root", "cache"], "image = 'id'\ntarget = 'y'"),
        ("parquet", &["path", "cache"], ""),
        ("sqlite", &["path"], ""),
    ] {
        let model = if name == "tinyshakespeare" { "gpt" } else { "linear" };
        let hash = |place: &str| {
            let keys: String = places
                .iter()
                .map(|key| format!("{key} = '{}{place}'\n", if *key == "url" { "http://" } else { "" }))
                .collect();
            let spec = format!(
                "name = 'x'\nbatch_size = 4\n[model]\nname = '{model}'\n\
                 [dataset]\nname = '{name}'\n{keys}{more}\n[optimizer]\nname = 'sgd'\n"
            );
            resolved(&Registry::standard(), &spec, &[], 1).unwrap().hash
        };
        assert_eq!(hash("a"), hash("b"), "{name}");
    }
}
