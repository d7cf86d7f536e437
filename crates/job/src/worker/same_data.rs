//! Checks that all ranks have rank 0's data set, and that it is the checkpoint's. Nothing else would detect training
//! on different data.

use super::data::open_data;
use super::exchange::gathered;
use super::parts::DataParts;
use base::error::{Error, Result};
use checkpoint::RunState;
use collectives::rendezvous::name_ranks;
use collectives::{ProcessGroup, SoloGroup};
use data::{Encoding, Fingerprint};
use launch::grouped;
use train::training::Position;

/// Compares the data sets of all ranks. Collective: all ranks call it.
///
/// # Errors
/// The same on all ranks: the ranks whose data set differs from the majority's (exit 78). A failed collective.
pub fn check_data_sets(own: &Fingerprint, group: &dyn ProcessGroup) -> Result<()> {
    compare(&gathered(own, group)?)
}

/// The fingerprint of the data set in its present state; downloads and opens it like a run.
///
/// # Errors
/// It is missing or damaged (exit 78).
pub fn present(data: &DataParts<'_>) -> Result<Fingerprint> {
    open_data(data, None, &SoloGroup::default(), 0).map(|splits| Fingerprint::new(&splits))
}

/// The fingerprint of the data set that a checkpoint was trained on; `None` if its state has none.
pub fn recorded(state: &RunState) -> Option<Fingerprint> {
    serde_json::from_value(state.extra.get("data")?.clone()).ok()
}

pub(super) fn compare(all: &[Fingerprint]) -> Result<()> {
    let kinds = grouped(all.iter().enumerate());
    // The majority's data set is taken as correct; without a majority, the lowest rank's.
    let Some((usual, _)) = kinds.iter().rev().max_by_key(|(_, ranks)| ranks.len()) else { return Ok(()) };
    let others = kinds.iter().filter(|(of, _)| of != usual).map(|(of, ranks)| {
        let how = of.differs(usual, " instead of ").unwrap_or_default();
        format!("{} {} {how}", name_ranks(ranks), if ranks.len() == 1 { "has" } else { "have" })
    });
    let others: Vec<String> = others.collect();
    if others.is_empty() {
        return Ok(());
    }
    Err(Error::data(format!("the ranks have different data sets: {}", others.join("; ")))
        .hint("every host needs the same files at the path in `[dataset]`; compare them with `sha256sum`"))
}

/// Checks that the tokens of texts are those of the checkpoint.
///
/// # Errors
/// The tokenizer is another one: the same numbers would be other tokens (exit 78).
pub fn same_tokens(saved: Option<Encoding>, now: Option<Encoding>) -> Result<()> {
    match (saved, now) {
        (Some(Encoding::Text(saved)), Some(Encoding::Text(now))) if saved.tokenizer != now.tokenizer => {
            let what = match saved.tokenizer.characters().and(now.tokenizer.characters()) {
                Some(_) => "the characters of the text",
                None => "the tokens of `[tokenizer]`",
            };
            Err(Error::data(format!(
                "{what} are not those of the checkpoint: the model knows others by their numbers"
            ))
            .hint("restore them, or start over with `--resume never`"))
        }
        _ => Ok(()),
    }
}

/// A description of the change since a checkpoint.
///
/// # Errors
/// The data set no longer has samples at the run's position (exit 78).
pub fn since(
    saved: &Fingerprint,
    now: &Fingerprint,
    position: &Position,
    drop_last: bool,
) -> Result<Option<String>> {
    if saved.train != now.train && !position.fits(now.train as usize, drop_last) {
        let message = format!(
            "the checkpoint was saved after {} of an epoch's {} samples, but the data set now has {}",
            position.seen(),
            saved.train,
            now.train
        );
        return Err(Error::data(message)
        .hint("restore the data set, resume from a checkpoint at the end of an epoch, or start over with `--resume never`"));
    }
    let changed = saved.differs(now, ", now ");
    Ok(changed.map(|what| format!("the data set has changed since this checkpoint was made: {what}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::ErrorKind;
    use train::training::Batching;

    fn has(train: u64, val: Option<u64>, content: &str) -> Fingerprint {
        Fingerprint { train, val, content: content.to_owned() }
    }

    fn compared(all: &[Fingerprint]) -> Option<String> {
        let error = compare(all).err()?;
        assert_eq!(error.kind, ErrorKind::Spec);
        Some(error.message)
    }

    #[test]
    fn ranks_whose_data_differs_are_named() {
        let (usual, more, other) =
            (has(399, Some(44), "a"), has(899, Some(44), "b"), has(399, Some(44), "c"));
        assert_eq!(compared(&[]), None);
        assert_eq!(compared(&vec![usual.clone(); 3]), None);
        let said =
            |all: &[&Fingerprint]| compared(&all.iter().map(|f| (*f).clone()).collect::<Vec<_>>()).unwrap();
        assert_eq!(
            said(&[&usual, &more]),
            "the ranks have different data sets: rank 1 has 899 training samples instead of 399"
        );
        assert_eq!(
            said(&[&more, &usual, &usual]),
            "the ranks have different data sets: rank 0 has 899 training samples instead of 399"
        );
        assert_eq!(
            said(&[&usual, &other, &usual, &other, &usual, &more]),
            "the ranks have different data sets: ranks 1 and 3 have the same number of samples with different contents; \
             rank 5 has 899 training samples instead of 399"
        );
        assert_eq!(
            said(&[&usual, &has(399, None, "a")]),
            "the ranks have different data sets: rank 1 has 0 validation samples instead of 44"
        );
    }

    #[test]
    fn all_ranks_receive_the_same_error() {
        let found = collectives::spawn(3, |group| {
            let content = if group.rank() == 2 { "other" } else { "a" };
            let same = check_data_sets(&has(10, None, "a"), &*group).is_ok();
            Ok((same, check_data_sets(&has(10, None, content), &*group).unwrap_err().message))
        });
        for (same, message) in found.unwrap() {
            let expected = "rank 2 has the same number of samples with different contents";
            assert!(same && message.ends_with(expected), "{message}");
        }
    }

    #[test]
    fn a_changed_data_set_is_a_warning_as_long_as_the_position_fits() {
        let saved = has(399, Some(44), "a");
        let mut position = Position::new(Batching::new(2, 8, 1));
        // 320 samples of an epoch are finished.
        position.micro = 20;
        let ask = |now, position: &Position| since(&saved, &now, position, false);
        assert_eq!(ask(saved.clone(), &position).unwrap(), None);
        assert_eq!(
            ask(has(899, Some(44), "b"), &position).unwrap().unwrap(),
            "the data set has changed since this checkpoint was made: 399 training samples, now 899"
        );
        assert!(ask(has(320, Some(44), "b"), &position).is_ok());
        let error = ask(has(300, Some(44), "b"), &position).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Spec);
        assert_eq!(
            error.message,
            "the checkpoint was saved after 320 of an epoch's 399 samples, but the data set now has 300"
        );
        // At the end of an epoch, any number is valid.
        let between = Position::new(Batching::new(2, 8, 1));
        assert!(ask(has(300, None, "b"), &between).unwrap().is_some());
        // An epoch with a padded last batch is finished, although more samples were drawn than exist.
        position.micro = 25;
        assert_eq!(ask(saved.clone(), &position).unwrap(), None);
    }
}
