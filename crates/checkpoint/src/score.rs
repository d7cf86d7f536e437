//! The order of evaluations by the metric that ranks checkpoints, in which all that names the best one agrees.

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// How good an evaluation is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Smaller is better.
    cost: f64,
    val_loss: Option<f64>,
}

impl Score {
    /// Of a metric's value; `None` if that is not finite.
    pub fn new(value: f64, prefers_larger: bool, val_loss: Option<f64>) -> Option<Self> {
        // Without the sign of zero.
        let cost = if prefers_larger { -value } else { value } + 0.0;
        cost.is_finite().then(|| Self { cost, val_loss: val_loss.filter(|loss| loss.is_finite()) })
    }

    /// The better one first: by the metric, then by the lower `val.loss`.
    pub fn order(self, other: Self) -> Ordering {
        let loss = |it: Self| it.val_loss.unwrap_or(f64::INFINITY) + 0.0;
        self.cost.total_cmp(&other.cost).then(loss(self).total_cmp(&loss(other)))
    }

    /// Whether it is better than that of an earlier evaluation. Of equal ones the later is better.
    pub fn beats(self, earlier: Self) -> bool {
        self.order(earlier) != Ordering::Greater
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_the_lower_loss_and_then_to_the_later_evaluation() {
        let of = |accuracy: f64, loss: Option<f64>| Score::new(accuracy, true, loss).unwrap();
        assert!(of(0.9, Some(2.0)).beats(of(0.8, Some(1.0))));
        assert!(!of(0.8, Some(1.0)).beats(of(0.9, Some(2.0))));
        assert!(
            of(0.9, Some(0.5)).beats(of(0.9, Some(0.6))) && !of(0.9, Some(0.6)).beats(of(0.9, Some(0.5)))
        );
        assert!(
            of(0.9, Some(0.5)).beats(of(0.9, None)) && !of(0.9, Some(f64::NAN)).beats(of(0.9, Some(0.5)))
        );
        assert!(of(0.9, Some(0.5)).beats(of(0.9, Some(0.5))) && of(0.0, None).beats(of(-0.0, None)));
        let loss = |value| Score::new(value, false, Some(value)).unwrap();
        assert!(loss(0.5).beats(loss(0.6)) && !loss(0.6).beats(loss(0.5)));
        assert_eq!(Score::new(f64::NAN, true, None), None);
    }
}
