//! The floating-point operations of training, by which a rate is a share of what a machine can do.

/// Those of the forward and the backward pass of one sequence, as "model FLOPs" are counted since PaLM (Chowdhery et al. 2022,
/// arXiv:2204.02311, appendix B): 6 for each token and weight of a matrix, 12 for each element of a layer's heads (`width`) and pair of
/// tokens, whether one sees the other or not. `seen` has the length of the sequence, or of the window, of each layer. Neither
/// embeddings, norms nor anything that is computed twice count.
pub(super) fn training_flops(
    weights: usize,
    tokens: usize,
    width: usize,
    seen: impl Iterator<Item = usize>,
) -> f64 {
    let pairs: usize = seen.map(|seen| seen.min(tokens)).sum();
    tokens as f64 * (6.0 * weights as f64 + 12.0 * width as f64 * pairs as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GPT-2 of 124M parameters: 85 million weights in its blocks, 38.6 million in its head.
    #[test]
    fn a_sequence_of_gpt_2_has_875_gflop() {
        let (width, layers) = (768, 12);
        let weights = layers * 12 * width * width + 50_257 * width;
        let flops = training_flops(weights, 1024, width, std::iter::repeat_n(1024, layers));
        // nanoGPT's `estimate_mfu`, whose parameters also have the biases and norms.
        assert!((flops / 1024.0 - (6.0 * 123.6e6 + 12.0 * 12.0 * 768.0 * 1024.0)).abs() < 1e6, "{flops}");
        assert!((flops - 875.2e9).abs() < 1e9, "{flops}");
        // A window of a quarter in half of the layers.
        let windows = (0..layers).map(|layer| if layer % 2 == 0 { 256 } else { 4096 });
        let fewer = training_flops(weights, 1024, width, windows);
        let pairs = (flops - fewer) / (12.0 * 768.0 * 1024.0);
        assert_eq!(pairs, (6 * 768) as f64);
    }
}
