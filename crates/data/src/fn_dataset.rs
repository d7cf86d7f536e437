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
    use crate::testing::configure;

    #[derive(serde::Deserialize, JsonSchema)]
    struct Keys {
        samples: usize,
    }

    #[derive(Debug)]
    struct Source(usize);

    impl DatasetSource for Source {
        fn open(&self) -> Result<Splits> {
            Err(Error::data(format!("there are no {} samples", self.0)))
        }
    }

    #[test]
    fn reports_wrong_keys_of_a_custom_source() {
        let own = from_fn(|keys: Keys| Source(keys.samples));
        let source = configure(&own, "samples = 24").unwrap();
        assert!(source.open().err().unwrap().message.contains("no 24 samples"));
        let problems = configure(&own, "samples = \"many\"").err().unwrap();
        assert!(
            problems.contains("line 2, column 11") && problems.contains("expected an integer"),
            "{problems}"
        );
        let problems = configure(&own, "samples = 1\nsample = 2").err().unwrap();
        assert!(problems.contains("did you mean `samples`?"), "{problems}");
    }
}
