//! The data of a rank: its files are prepared once a machine, then every rank opens them.

use super::fit;
use super::messages::warn;
use super::parts::DataParts;
use base::display;
use base::error::{Error, Result};
use collectives::{ProcessGroup, Wait};
use data::{DataFacts, Dataset, Encoding, Splits, recoded, transformed};
use launch::logs::ALREADY_PRINTED;
use std::sync::Arc;

/// Maximum number of classes that a message names.
const MAX_NAMED: usize = 8;

/// Rank 0 prepares the files, then the first rank of each other node, which finds nothing to do where nodes share them; all without
/// a deadline. Then every rank opens them, encoded as `known` if that is given.
pub(super) fn open_data(
    data: &DataParts<'_>,
    known: Option<&Encoding>,
    group: &dyn ProcessGroup,
    local_rank: usize,
) -> Result<Splits> {
    let mut tell = |line: &str| {
        tracing::info!(target: ALREADY_PRINTED, "{line}");
        info!("{}", display::message(line));
    };
    if group.rank() == 0 {
        data.source.prepare(&mut tell).map_err(Error::of_data)?;
    }
    group.barrier(Wait::WhilePeersLive)?;
    if group.rank() != 0 && local_rank == 0 {
        data.source.prepare(&mut tell).map_err(Error::of_data)?;
    }
    group.barrier(Wait::WhilePeersLive)?;
    let splits = opened(data, known)?;
    if group.rank() == 0 {
        splits.train.remarks().iter().for_each(|line| tell(line));
    }
    fit::samples(data.name, &splits)?;
    Ok(splits)
}

/// The data set as samples are taken from it, encoded as `known` if that is given.
pub(super) fn opened(data: &DataParts<'_>, known: Option<&Encoding>) -> Result<Splits> {
    let splits = match known {
        Some(known) => data.source.open_encoded(known).and_then(|splits| recoded(data.name, splits, known)),
        None => data.source.open(),
    };
    Ok(transformed(splits.map_err(Error::of_data)?, data.transforms))
}

/// Which classes of the data have no sample in a split, which messages call `what`; `None` if all have some, or it is not known.
pub(super) fn lacking(what: &str, set: &dyn Dataset) -> Option<String> {
    let counts = set.class_counts()?;
    let encoding = set.encoding();
    let names = encoding.as_ref().and_then(Encoding::classes).unwrap_or_default();
    let name = |class: usize| names.get(class).map_or_else(|| class.to_string(), |name| display::name(name));
    let without: Vec<usize> = (0..counts.len()).filter(|class| counts[*class] == 0).collect();
    let shown: Vec<String> =
        without.iter().take(MAX_NAMED).map(|class| format!("`{}`", name(*class))).collect();
    let more = if without.len() > shown.len() { ", …" } else { "" };
    let (n, of) = (without.len(), counts.len());
    (n > 0 && !set.is_empty())
        .then(|| format!("{what} samples lack {n} of {of} classes: {}{more}", shown.join(", ")))
}

/// Warns of classes without samples.
pub(super) fn say_lacking(splits: &Splits) {
    let val = splits.val.as_ref().and_then(|val| lacking("the validation", &**val));
    let all = lacking("the training", &*splits.train).into_iter().chain(val);
    all.for_each(|what| warn(&what));
}

/// The facts known from the open data sets.
pub(super) fn facts_of(splits: &Splits) -> DataFacts {
    let len = |set: &Option<Arc<dyn Dataset>>| set.as_ref().map(|s| s.len());
    DataFacts {
        input: Some(splits.train.input()),
        target: Some(splits.train.target()),
        fields: splits.train.fields(),
        train: Some(splits.train.len()),
        val: len(&splits.val),
        test: len(&splits.test),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::resolved;
    use crate::registry::Registry;

    /// A table that is sorted by class: 30 rows of `a`, 9 of `b` and one of `c`.
    fn opened(more: &str) -> Splits {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.csv");
        let class = |row: usize| ["a", "b", "c"][usize::from(row >= 30) + usize::from(row == 39)];
        let rows: String = (0..40).map(|row| format!("{row},{}\n", class(row))).collect();
        std::fs::write(&path, format!("x,y\n{rows}")).unwrap();
        let spec = format!(
            "name = 'a'\nbatch_size = 4\nmodel.name = 'linear'\noptimizer.name = 'sgd'\n[dataset]\nname = 'csv'\n\
             path = {path:?}\ntarget = 'y'\ntask = 'classification'\n{more}"
        );
        resolved(&Registry::standard(), &spec, &[], 1).unwrap().dataset.source.open().unwrap()
    }

    #[test]
    fn a_limit_keeps_every_class_of_sorted_data() {
        let counts = |more: &str| opened(&format!("val_split = 0.0\n{more}")).train.class_counts().unwrap();
        assert_eq!(counts(""), [30, 9, 1]);
        assert_eq!(counts("max_train = 4"), [2, 1, 1]);
        assert_eq!(counts("max_train = 20"), [14, 5, 1]);
    }

    #[test]
    fn a_class_without_samples_is_said() {
        let said = |more: &str| lacking("the training", &*opened(more).train);
        assert_eq!(said("val_split = 0.0"), None);
        let two = said("val_split = 0.0\nmax_train = 2").unwrap();
        assert!(two.starts_with("the training samples lack 1 of 3 classes: `"), "{two}");
        let val = opened("val_split = 0.4\nmax_val = 1").val.unwrap();
        let one = lacking("the validation", &*val).unwrap();
        assert!(one.starts_with("the validation samples lack 2 of 3 classes: `"), "{one}");
        // Numbers have no classes.
        let spec = "name = 'a'\nbatch_size = 4\nmodel.name = 'linear'\noptimizer.name = 'sgd'\ndataset.name = 'random'";
        let numbers = resolved(&Registry::standard(), spec, &[], 1).unwrap().dataset.source.open().unwrap();
        assert_eq!(lacking("the training", &*numbers.train), None);
    }
}
