//! The global gradient norm and the clip coefficient, as in `torch.nn.utils.clip_grad_norm_`.

pub use kernels::global_norm::{SumOfSquares, global_norm};

/// The factor of every gradient that limits their norm to `max_norm`:
/// `min(1, max_norm / (norm + 1e-6))`.
pub fn clip_coefficient(norm: f64, max_norm: f64) -> f32 {
    (max_norm / (norm + 1e-6)).min(1.0) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coefficient_matches_pytorch() {
        assert_eq!(clip_coefficient(0.5, 1.0), 1.0);
        assert_eq!(clip_coefficient(0.0, 1.0), 1.0);
        assert_eq!(clip_coefficient(4.0, 1.0), (1.0f64 / (4.0 + 1e-6)) as f32);
    }
}
