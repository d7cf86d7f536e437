//! What ranks tell each other of the keys of their plans besides the plan's hash: a digest of each, in few bytes, so that a rank that
//! refuses another plan can name the keys that differ.

use base::display;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// The keys on which a plan's hash depends, with their values as text.
pub type PlanKeys = BTreeMap<String, String>;

/// Bytes of a digest: two different values have the same one in four billion.
const BYTES: usize = 4;
/// Maximum number of keys whose digests are sent; of more, none are.
const MAX_KEYS: usize = 512;
/// The longest text of digests.
pub(super) const MAX_DIGESTS: usize = 2 * BYTES * MAX_KEYS;
/// Maximum number of keys in a message.
const NAMED: usize = 5;

/// The digests of all keys, one after the other.
pub(super) fn digests(keys: &PlanKeys) -> String {
    match keys.len() {
        0..=MAX_KEYS => keys.iter().map(digest).collect(),
        _ => String::new(),
    }
}

fn digest((key, value): (&String, &String)) -> String {
    HEXLOWER.encode(&Sha256::digest(format!("{key} = {value}"))[..BYTES])
}

/// `: it differs in optimizer.lr, 0.1 on rank 0`, of the keys of rank `me` that are not among `theirs`; empty if nothing is known.
pub(super) fn differing(own: &PlanKeys, me: usize, theirs: &str) -> String {
    let theirs: BTreeSet<&[u8]> = theirs.as_bytes().chunks(2 * BYTES).collect();
    let differs = |pair: &(&String, &String)| !theirs.contains(digest(*pair).as_bytes());
    if theirs.is_empty() || own.len() > MAX_KEYS {
        return String::new();
    }
    let all: Vec<(&String, &String)> = own.iter().filter(differs).collect();
    let mut named: Vec<String> = all
        .iter()
        .take(NAMED)
        .map(|(key, value)| format!("{}, {} on rank {me}", display::name(key), display::name(value)))
        .collect();
    if all.len() > NAMED {
        named.push(format!("and {} more", all.len() - NAMED));
    }
    match &named[..] {
        [] if theirs.len() > own.len() => format!(": it has keys that rank {me} does not have"),
        [] => String::new(),
        named => format!(": it differs in {}", named.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(all: &[(&str, &str)]) -> PlanKeys {
        all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn keys_that_differ_are_named_with_the_value_of_this_rank() {
        let own = keys(&[("epochs", "2"), ("optimizer.lr", "0.1"), ("seed", "1")]);
        let with = |theirs: &[(&str, &str)]| differing(&own, 0, &digests(&keys(theirs)));
        let other = [("epochs", "2"), ("optimizer.lr", "0.2"), ("seed", "1")];
        assert_eq!(with(&other), ": it differs in optimizer.lr, 0.1 on rank 0");
        assert_eq!(with(&other[..2]), ": it differs in optimizer.lr, 0.1 on rank 0; seed, 1 on rank 0");
        let more = [("epochs", "2"), ("optimizer.lr", "0.1"), ("seed", "1"), ("ema.decay", "0.9")];
        assert_eq!(with(&more), ": it has keys that rank 0 does not have");
        assert_eq!((with(&[]), differing(&own, 0, &digests(&own))), (String::new(), String::new()));
        let many: PlanKeys = (0..MAX_KEYS).map(|i| (format!("k{i:03}"), String::new())).collect();
        assert_eq!(digests(&many).len(), MAX_DIGESTS);
        let none = [("a".to_owned(), "\u{1b}".to_owned())].into();
        assert_eq!(differing(&none, 1, &digests(&own)), ": it differs in a, · on rank 1");
        assert!(differing(&many, 0, &digests(&own)).ends_with("; and 507 more"));
    }
}
