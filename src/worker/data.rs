//! The data of a rank: its files are prepared once a machine, then every rank opens them.

use super::fit;
use super::parts::DataParts;
use crate::comm::{ProcessGroup, Wait};
use crate::data::{DataFacts, Dataset, Encoding, Splits, recoded, transformed};
use crate::error::{Error, Result};
use crate::launch::logs::SAID;
use crate::show;
use std::sync::Arc;

/// Rank 0 prepares the files, then the first rank of each other node, which finds nothing to do where nodes share them; all without
/// a deadline. Then every rank opens them, encoded as `known` if that is given.
pub(super) fn open_data(
    data: &DataParts<'_>,
    known: Option<&Encoding>,
    group: &dyn ProcessGroup,
    local_rank: usize,
) -> Result<Splits> {
    let mut tell = |line: &str| {
        tracing::info!(target: SAID, "{line}");
        inform!("{}", show::message(line));
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
