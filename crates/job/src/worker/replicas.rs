//! What rank 0 records of ranks whose states differ. Where equality alone does not show which rank is wrong (two ranks), the repeated
//! steps do: their bits are those of the ranks that were right.

use record::{Digest, DivergenceEvent};
use train::training::{Divergence, Position};

/// The evidence of which ranks are wrong.
const MAJORITY: &str = "majority";
const REPETITION: &str = "repetition";

/// The event about `found`.
pub(super) fn event_of(position: &Position, found: &Divergence) -> DivergenceEvent {
    DivergenceEvent {
        step: found.step,
        epoch: position.epoch,
        ranks: found.ranks.clone(),
        by: (!found.ranks.is_empty()).then(|| MAJORITY.to_owned()),
        tensor: found.tensor.clone(),
        digests: found.digests.iter().map(ToString::to_string).collect(),
        agreed: found.agreed,
    }
}

/// The last divergence of a run, if it is not known which ranks were wrong.
#[derive(Debug)]
pub(super) struct Undecided(Option<DivergenceEvent>);

impl Undecided {
    pub(super) fn new(last: Option<DivergenceEvent>) -> Self {
        Self(last.filter(|last| last.by.is_none()))
    }

    /// The event and the line that follow from the agreement of all ranks on `digest` after step number `step`. A run that continues
    /// with another number of ranks has other bits, from which nothing follows.
    pub(super) fn decided(&mut self, step: u64, digest: Digest) -> Option<(DivergenceEvent, String)> {
        let before = self.0.take_if(|before| before.step == step)?;
        let repeated = digest.to_string();
        let differ = |(_, own): &(usize, &String)| **own != repeated;
        let wrong: Vec<usize> =
            before.digests.iter().enumerate().filter(differ).map(|(rank, _)| rank).collect();
        if wrong.is_empty() || wrong.len() == before.digests.len() {
            let line = format!(
                "the repeated step {step} has the state of none of the ranks that differed: which of them was wrong is not known"
            );
            tracing::warn!("{line}");
            return None;
        }
        let event = DivergenceEvent { ranks: wrong, by: Some(REPETITION.to_owned()), ..before };
        let line = format!("{}: the repeated step {step} has the state of the others", event.words());
        Some((event, line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(digests: &[u128], by: Option<&str>) -> DivergenceEvent {
        DivergenceEvent {
            step: 8,
            epoch: 0,
            ranks: Vec::new(),
            by: by.map(str::to_owned),
            tensor: "parameter w".to_owned(),
            digests: digests.iter().map(|digest| Digest(*digest).to_string()).collect(),
            agreed: 4,
        }
    }

    #[test]
    fn the_repeated_step_tells_which_of_two_ranks_was_wrong() {
        let mut open = Undecided::new(Some(event(&[1, 2], None)));
        assert!(open.decided(6, Digest(1)).is_none());
        let (event, line) = open.decided(8, Digest(1)).unwrap();
        assert_eq!((event.ranks, event.by.as_deref()), (vec![1], Some(REPETITION)));
        assert_eq!(line, "silent data corruption on rank 1: the repeated step 8 has the state of the others");
        // Once.
        assert!(open.decided(8, Digest(1)).is_none());
    }

    #[test]
    fn what_is_decided_or_unlike_all_ranks_is_not_told() {
        assert!(Undecided::new(Some(event(&[1, 2], Some(MAJORITY)))).decided(8, Digest(1)).is_none());
        assert!(Undecided::new(Some(event(&[1, 2], None))).decided(8, Digest(3)).is_none());
        assert!(Undecided::new(None).decided(8, Digest(3)).is_none());
    }
}
