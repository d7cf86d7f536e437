//! Data sets defined in a user's crate: a function from the keys of `[dataset]` to a source.

use super::{DatasetKind, DatasetSource, Splits};
use base::error::{Error, Result};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use spec::Fields;
use std::sync::Arc;

/// A kind that calls `make`; the data set's keys in the `[dataset]` table are deserialised into `C`.
pub fn from_fn<C, S, F>(make: F) -> impl DatasetKind
where
    C: DeserializeOwned + JsonSchema + Send + Sync + 'static,
    S: DatasetSource + 'static,
    F: Fn(C) -> S + Send + Sync + 'static,
{
    move |fields: &mut Fields<'_>| -> Arc<dyn DatasetSource> {
        // Keys of these names give the location of the data, which does not change results.
        fields.without_effect(&["root", "path", "cache", "url"]);
        match fields.parse::<C>() {
            Some(config) => Arc::new(make(config)),
            None => Arc::new(Invalid),
        }
    }
}

/// The source of a table with a problem; the problem is reported before anything runs.
#[derive(Debug)]
struct Invalid;

impl DatasetSource for Invalid {
    fn open(&self) -> Result<Splits> {
        Err(Error::spec("the [dataset] table is invalid"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::DataFacts;
    use crate::plan::Plan;
    use crate::plan::testing::resolved;
    use crate::registry::Registry;

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
    fn reports_wrong_keys_of_a_custom_source() {
        let problems = resolve("samples = \"many\"").unwrap_err();
        assert!(
            problems.contains("line 7, column 11") && problems.contains("expected an integer"),
            "{problems}"
        );
        let problems = resolve("samples = 1\nsample = 2").unwrap_err();
        assert!(problems.contains("did you mean `samples`?"), "{problems}");
    }
}
