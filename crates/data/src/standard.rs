//! The built-in data sets by name.

use super::DatasetKind;
use super::sets::{
    Mnist, california_housing, cifar10, csv, image_csv, image_folder, parquet, random, shapes, sqlite, text,
    tinyshakespeare,
};
use std::sync::Arc;

/// The data sets of ddp-run under their names in specs, in the order of messages.
pub fn standard_kinds() -> Vec<(&'static str, Arc<dyn DatasetKind>)> {
    vec![
        ("random", Arc::new(random)),
        ("shapes", Arc::new(shapes)),
        ("cifar10", Arc::new(cifar10)),
        ("mnist", Arc::new(Mnist::DIGITS)),
        ("fashion-mnist", Arc::new(Mnist::FASHION)),
        ("csv", Arc::new(csv)),
        ("california-housing", Arc::new(california_housing)),
        ("text", Arc::new(text)),
        ("tinyshakespeare", Arc::new(tinyshakespeare)),
        ("image-folder", Arc::new(image_folder)),
        ("image-csv", Arc::new(image_csv)),
        ("parquet", Arc::new(parquet)),
        ("sqlite", Arc::new(sqlite)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::configure;

    /// Every kind accepts its defaults (with a path if it requires one) and rejects unknown keys.
    #[test]
    fn every_kind_accepts_its_defaults_and_rejects_unknown_keys() {
        for (name, kind) in standard_kinds() {
            let needs = match name {
                "csv" => "path = 'a.csv'\ntarget = 'y'\n",
                "text" => "path = 'a.txt'\n",
                "image-folder" => "root = 'a'\n",
                "image-csv" => "root = 'a'\nimage = 'id'\ntarget = 'y'\n",
                "parquet" | "sqlite" => "path = 'a'\n",
                _ => "",
            };
            let source = configure(&*kind, needs).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(source.facts().train.is_none_or(|n| n > 0), "{name}");
            let error = configure(&*kind, &format!("{needs}max_trian = 1\nfrobnicate = 1")).err().unwrap();
            assert!(error.contains("frobnicate") && error.contains("2 problems"), "{name}: {error}");
        }
    }

    #[test]
    fn reports_all_wrong_transforms() {
        let (_, shapes) = standard_kinds().into_iter().find(|(name, _)| *name == "shapes").unwrap();
        let table = "augment = ['flop', 'flip', 'flip']\ncutout = 3\nmean = [0.1, 0.2]\nstd = [0.0]";
        let error = configure(&*shapes, table).err().unwrap();
        for why in [
            "unknown augmentation; did you mean `flip`?",
            "listed twice",
            "has no effect without \"cutout\" in `augment`",
            "expected 1 numbers, one per channel, found 2",
            "5 problems",
        ] {
            assert!(error.contains(why), "{why} is not in\n{error}");
        }
        configure(&*shapes, "augment = ['cutout', 'crop']\ncutout = 3\nmean = [0.1]\nstd = [0.5]").unwrap();
    }
}
