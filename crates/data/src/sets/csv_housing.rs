//! `california-housing`: a published table, read as `csv` reads it.

use super::csv::CsvSource;
use super::table::{Blanks, TableKeys, check_features};
use crate::DatasetSource;
use crate::split::SplitOptions;
use crate::store::{NamedFile, Published};
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use spec::Fields;
use std::sync::Arc;

/// The table of Géron's "Hands-On Machine Learning": the one of Pace and Barry (1997), and the distance to the ocean.
const FILE: Published = Published {
    name: "california_housing.csv",
    // The same rows are in another order in the repositories of the book's first two editions.
    urls: &[
        "https://raw.githubusercontent.com/ageron/data/main/housing/housing.csv",
        "https://raw.githubusercontent.com/ageron/data/2ea73147454d2ff8c8a933913be4606f05b352ca/housing/housing.csv",
    ],
    size: 1_423_529,
    sha256: "2364609dc48bec7df3ba9dbb7041478e704ecddcee70ef1827ec3fc49d22c0cc",
};
const TARGET: &str = "median_house_value";

/// Median house values in 20,640 districts of California in 1990: a known table, which is downloaded if it is missing. It is
/// read as by `csv`, with `median_house_value` as the target; the other columns are eight numbers and `ocean_proximity`, a text.
#[derive(Debug, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
struct Housing {
    /// The input columns. Default: all columns but the target.
    features: Option<Vec<String>>,
    /// What to do with an empty cell; 207 rows lack `total_bedrooms`.
    #[default(Blanks::Mean)]
    blanks: Blanks,
    /// Scale each column of numbers to mean 0 and standard deviation 1, both measured on the training split and computed with 64 bits.
    #[default = true]
    standardise: bool,
    /// Scale the target in the same way. The loss is that of the scaled target; `mae` and `mse` are in dollars.
    #[default = true]
    standardise_target: bool,
}

/// Reads the `[dataset]` table.
pub fn california_housing(fields: &mut Fields<'_>) -> Arc<dyn DatasetSource> {
    let file = NamedFile::published(fields, &FILE);
    let Housing { features, blanks, standardise, standardise_target } = fields.config();
    check_features(fields, features.as_deref(), TARGET);
    Arc::new(CsvSource {
        file,
        target: TARGET.to_owned(),
        keys: TableKeys { features, blanks, standardise, standardise_target, ..TableKeys::default() },
        split: SplitOptions::of_rows(fields),
        ..CsvSource::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{configure, shared};

    #[test]
    fn reads_the_real_table() {
        let Some(path) = shared("data/california_housing.csv") else { return };
        let source = configure(&california_housing, &format!("path = '{}'", path.display())).unwrap();
        source.prepare(&mut |_| ()).unwrap();
        let splits = source.open().unwrap();
        assert_eq!(splits.train.input().shape, [13]);
        assert_eq!((splits.train.len(), splits.val.unwrap().len()), (18_576, 2_064));
    }

    #[test]
    fn the_target_is_no_feature() {
        let error = configure(&california_housing, "features = ['median_house_value']").err().unwrap();
        assert!(error.contains("names the target"), "{error}");
    }
}
