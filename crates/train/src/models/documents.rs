//! Sequences that consist of several documents.

use base::error::{Error, Result};
use burn::tensor::{Device, Int, Tensor, TensorData};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Which tokens of a batch's sequences belong to one document. Its tokens have the positions from 0 on, and see no other's.
#[derive(Clone, Debug)]
pub struct Documents {
    /// Tokens of a sequence.
    time: usize,
    /// Of each token of `[batch, time]` the place in its sequence at which its document begins.
    starts: Arc<[u32]>,
    used: Arc<AtomicBool>,
}

impl Documents {
    /// From the positions of the tokens of sequences of `time`: in each sequence they count up from 0, again and again.
    ///
    /// # Errors
    /// They do not.
    pub fn new(positions: &[i64], time: usize) -> Result<Self> {
        let start = |(row, position): (usize, &i64)| {
            let at = row % time;
            let follows = *position == 0 || at > 0 && positions[row - 1] + 1 == *position;
            follows.then(|| (at as i64 - position) as u32).ok_or_else(|| {
                let expected = match at {
                    0 => "0".to_owned(),
                    _ => format!("0 or {}", positions[row - 1] + 1),
                };
                Error::data(format!(
                    "token {at} of a sample has position {position} in its document; expected {expected}"
                ))
                .hint("the field `positions` counts the tokens of each document from 0 on")
            })
        };
        let starts: Result<Vec<u32>> = positions.iter().enumerate().map(start).collect();
        Ok(Self { time, starts: starts?.into(), used: Arc::default() })
    }

    /// Of each token of `[batch, time]` the place in its sequence at which its document begins.
    pub fn starts(&self) -> &[u32] {
        &self.starts
    }

    /// The places of the tokens in their documents.
    pub fn positions(&self) -> impl Iterator<Item = usize> {
        self.starts.iter().enumerate().map(|(row, start)| row % self.time - *start as usize)
    }

    /// The same as `[batch, time]`.
    pub fn position_tensor(&self, device: &Device) -> Tensor<2, Int> {
        self.tensor(self.positions().map(|position| position as i64), device)
    }

    /// The starts as `[batch, time]`.
    pub(super) fn start_tensor(&self, device: &Device) -> Tensor<2, Int> {
        self.tensor(self.starts.iter().map(|start| i64::from(*start)), device)
    }

    fn tensor(&self, values: impl Iterator<Item = i64>, device: &Device) -> Tensor<2, Int> {
        let values = TensorData::new(values.collect(), [self.starts.len() / self.time, self.time]);
        Tensor::from_data(values, device)
    }

    /// Tokens of the longest document.
    pub fn longest(&self) -> usize {
        self.positions().max().map_or(0, |last| last + 1)
    }

    pub(super) fn mark_used(&self) {
        self.used.store(true, Relaxed);
    }

    /// Checks that a model has asked for them.
    ///
    /// # Errors
    /// None has (exit 78).
    pub fn require_use(&self) -> Result<()> {
        if self.used.load(Relaxed) {
            return Ok(());
        }
        Err(Error::spec(
            "samples consist of several documents, and the model does not ask for them (`Input::documents`): \
             tokens would see other documents",
        )
        .hint("set `[dataset] pack` to \"none\", which has one document in each sample, or use a built-in model"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_begin_where_positions_are_zero() {
        let documents = Documents::new(&[0, 1, 2, 0, 0, 0, 1, 2, 3, 4], 5).unwrap();
        assert_eq!(documents.starts(), [0, 0, 0, 3, 4, 0, 0, 0, 0, 0]);
        assert_eq!(documents.positions().collect::<Vec<_>>(), [0, 1, 2, 0, 0, 0, 1, 2, 3, 4]);
        assert_eq!(documents.longest(), 5);
        let shape = documents.position_tensor(&Device::flex()).dims();
        assert_eq!(shape, [2, 5]);
    }

    #[test]
    fn positions_that_do_not_count_up_are_refused() {
        for (time, positions, expected) in [
            (4, [1, 2, 3, 4], "token 0 of a sample has position 1 in its document; expected 0"),
            (4, [0, 1, 1, 2], "token 2 of a sample has position 1 in its document; expected 0 or 2"),
            (2, [0, 1, 2, 3], "token 0 of a sample has position 2 in its document; expected 0"),
            (4, [0, -1, 0, 0], "token 1 of a sample has position -1"),
        ] {
            let why = Documents::new(&positions, time).unwrap_err();
            assert!(why.message.starts_with(expected), "{why}");
        }
    }
}
