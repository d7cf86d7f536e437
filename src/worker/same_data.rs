//! Checks that all ranks have rank 0's data set, and that it is the checkpoint's. Nothing else would detect training
//! on different data.

use super::gathered;
use crate::comm::ProcessGroup;
use crate::comm::rendezvous::name_ranks;
use crate::data::Fingerprint;
use crate::error::{Error, Result};
use crate::train::Position;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

/// Samples of training and validation (plus one; 0 if there is no such split), and a digest of the rest.
const ENTRY_LEN: usize = 8 + 8 + 32;
type Entry = [u8; ENTRY_LEN];

/// Compares the data sets of all ranks. Collective: all ranks call it.
///
/// # Errors
/// The same on all ranks: the ranks whose data set differs from the majority's (exit 78). A failed collective.
pub fn check_data_sets(own: &Fingerprint, group: &dyn ProcessGroup) -> Result<()> {
    compare(&gathered(&entry(own), group)?)
}

pub(super) fn entry(of: &Fingerprint) -> Entry {
    let mut entry = [0; ENTRY_LEN];
    entry[..8].copy_from_slice(&of.train.to_le_bytes());
    entry[8..16].copy_from_slice(&of.val.map_or(0, |val| val + 1).to_le_bytes());
    entry[16..].copy_from_slice(Sha256::digest(&of.content).as_slice());
    entry
}

/// A fingerprint that compares like the one that `entry` was made of.
fn fingerprint(entry: &Entry) -> Fingerprint {
    let number = |at: usize| entry[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let content = HEXLOWER.encode(&entry[16..]);
    Fingerprint { train: number(0), val: number(8).checked_sub(1), content }
}

pub(super) fn compare(entries: &[Entry]) -> Result<()> {
    let ranks_with =
        |entry: &Entry| -> Vec<usize> { (0..entries.len()).filter(|r| entries[*r] == *entry).collect() };
    let mut kinds: Vec<&Entry> = Vec::new();
    for entry in entries {
        if !kinds.contains(&entry) {
            kinds.push(entry);
        }
    }
    // The majority's data set is taken as correct; without a majority, the lowest rank's.
    let Some(usual) = kinds.iter().rev().max_by_key(|entry| ranks_with(entry).len()) else { return Ok(()) };
    let others = kinds.iter().filter(|entry| *entry != usual).map(|entry| {
        let how = fingerprint(entry).differs(&fingerprint(usual), " instead of ").unwrap_or_default();
        let ranks = ranks_with(entry);
        format!("{} {} {how}", name_ranks(&ranks), if ranks.len() == 1 { "has" } else { "have" })
    });
    let others: Vec<String> = others.collect();
    if others.is_empty() {
        return Ok(());
    }
    Err(Error::data(format!("the ranks have different data sets: {}", others.join("; ")))
        .hint("every host needs the same files at the path in `[dataset]`; compare them with `sha256sum`"))
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
    use crate::error::ExitCode;
    use crate::train::Batching;

    fn has(train: u64, val: Option<u64>, content: &str) -> Fingerprint {
        Fingerprint { train, val, content: content.to_owned() }
    }

    fn compared(all: &[Fingerprint]) -> Option<String> {
        let entries: Vec<Entry> = all.iter().map(entry).collect();
        let error = compare(&entries).err()?;
        assert_eq!(error.code, ExitCode::Spec);
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
        let groups = crate::comm::testing::form(3, crate::comm::testing::HANG, |_| Default::default());
        let threads: Vec<_> = groups
            .into_iter()
            .map(|group| {
                std::thread::spawn(move || {
                    let content = if group.rank() == 2 { "other" } else { "a" };
                    let same = check_data_sets(&has(10, None, "a"), &group).is_ok();
                    (same, check_data_sets(&has(10, None, content), &group).unwrap_err().message)
                })
            })
            .collect();
        for thread in threads {
            let (same, message) = thread.join().unwrap();
            assert!(same);
            assert!(
                message.ends_with("rank 2 has the same number of samples with different contents"),
                "{message}"
            );
        }
    }

    #[test]
    fn a_changed_data_set_is_a_warning_as_long_as_the_position_fits() {
        let saved = has(399, Some(44), "a");
        let mut position = Position::new(Batching::of(2, 8, 1));
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
        assert_eq!(error.code, ExitCode::Spec);
        assert_eq!(
            error.message,
            "the checkpoint was saved after 320 of an epoch's 399 samples, but the data set now has 300"
        );
        // At the end of an epoch, any number is valid.
        let between = Position::new(Batching::of(2, 8, 1));
        assert!(ask(has(300, None, "b"), &between).unwrap().is_some());
        // An epoch with a padded last batch is finished, although more samples were drawn than exist.
        position.micro = 25;
        assert_eq!(ask(saved.clone(), &position).unwrap(), None);
    }
}
