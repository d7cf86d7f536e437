//! The angles of rotary positions, as `modeling_rope_utils` of Hugging Face's transformers 5 computes them.

use super::Documents;
use burn::tensor::{Device, Tensor};
use ddp::device::send;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use spec::choice;
use std::f64::consts::PI;
use std::ops::Range;

choice! {
    /// How the angles are scaled for sequences that are longer than those of the pretraining.
    RopeType:
    /// Not at all.
    Default = "default",
    /// All divided by `factor`.
    Linear = "linear",
    /// A larger base for sequences longer than `max_position_embeddings` (NTK).
    Dynamic = "dynamic",
    /// Low frequencies divided by `factor`, from a share of each sequence on (Llama 3.1).
    Llama3 = "llama3",
    /// Low frequencies divided by `factor`, and larger scores (Peng et al., 2023, arXiv:2309.00071).
    Yarn = "yarn",
}

/// The table `rope_parameters` of Hugging Face's config.json.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub struct RopeParameters {
    /// The scaling.
    pub rope_type: RopeType,
    /// The base of the angles' wavelengths.
    #[default = 10000.0]
    #[schemars(extend("exclusiveMinimum" = 1.0))]
    pub rope_theta: f64,
    /// By which frequencies are divided: the ratio of the longest sequence to that of the pretraining.
    #[schemars(range(min = 1.0))]
    pub factor: Option<f64>,
    /// `llama3`: wavelengths above the pretraining's length divided by it are divided by `factor`.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub low_freq_factor: Option<f64>,
    /// `llama3`: wavelengths below the pretraining's length divided by it stay as they are.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub high_freq_factor: Option<f64>,
    /// `llama3` and `yarn`: the longest sequence of the pretraining. Default: `max_position_embeddings`.
    #[schemars(range(min = 1))]
    pub original_max_position_embeddings: Option<usize>,
    /// `yarn`: the factor of queries and of keys. Default: from `factor`, `mscale` and `mscale_all_dim`.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub attention_factor: Option<f64>,
    /// `yarn`: frequencies of more rotations stay as they are. Default: 32.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub beta_fast: Option<f64>,
    /// `yarn`: frequencies of fewer rotations are divided by `factor`. Default: 1.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub beta_slow: Option<f64>,
    /// `yarn`: see `attention_factor`.
    #[schemars(range(min = 0.0))]
    pub mscale: Option<f64>,
    /// `yarn`: see `attention_factor`.
    #[schemars(range(min = 0.0))]
    pub mscale_all_dim: Option<f64>,
    /// `yarn`: the bounds between frequencies are rounded to whole ones. Default: true.
    pub truncate: Option<bool>,
}

impl RopeParameters {
    /// Without scaling.
    pub fn plain(rope_theta: f64) -> Self {
        Self { rope_theta, ..Self::default() }
    }

    /// A key that the type needs and that is missing, or that has no effect with it.
    pub fn problem(&self) -> Option<String> {
        use RopeType::{Dynamic, Linear, Llama3, Yarn};
        let scaled = [Linear, Dynamic, Llama3, Yarn];
        let keys: [(&str, bool, &[RopeType], &[RopeType]); 10] = [
            ("factor", self.factor.is_some(), &scaled, &[]),
            ("low_freq_factor", self.low_freq_factor.is_some(), &[Llama3], &[]),
            ("high_freq_factor", self.high_freq_factor.is_some(), &[Llama3], &[]),
            (
                "original_max_position_embeddings",
                self.original_max_position_embeddings.is_some(),
                &[],
                &[Llama3, Yarn],
            ),
            ("attention_factor", self.attention_factor.is_some(), &[], &[Yarn]),
            ("beta_fast", self.beta_fast.is_some(), &[], &[Yarn]),
            ("beta_slow", self.beta_slow.is_some(), &[], &[Yarn]),
            ("mscale", self.mscale.is_some(), &[], &[Yarn]),
            ("mscale_all_dim", self.mscale_all_dim.is_some(), &[], &[Yarn]),
            ("truncate", self.truncate.is_some(), &[], &[Yarn]),
        ];
        let own = self.rope_type;
        let problem = keys.into_iter().find_map(|(key, is_set, required, optional)| {
            match (is_set, required.contains(&own), optional.contains(&own)) {
                (false, true, _) => Some(format!("`rope_type = \"{own}\"` needs `{key}`")),
                (true, false, false) => Some(format!("`{key}` has no effect with `rope_type = \"{own}\"`")),
                _ => None,
            }
        });
        let bands = self.low_freq_factor.zip(self.high_freq_factor).filter(|(low, high)| low >= high);
        problem.or_else(|| {
            let (low, high) = bands?;
            Some(format!("`low_freq_factor` must be below `high_freq_factor` = {high}, found {low}"))
        })
    }
}

/// The rotary positions of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// As in the spec.
    pub parameters: RopeParameters,
    /// Elements of a head; even.
    pub head_dim: usize,
    /// The model's longest sequence.
    pub max_position_embeddings: usize,
}

impl Rope {
    /// The table of these positions of a sequence that ends with the last of them, for the operation `rotary`:
    /// `[positions, head_dim]`, of each position the cosines, then the sines of its angles.
    pub fn table(&self, positions: Range<usize>, device: &Device) -> Tensor<2> {
        let rows = positions.len();
        self.sent(self.values(positions), rows, device)
    }

    /// The same of each token of documents, `[batch * time, head_dim]`. With `dynamic` angles the longest document's length counts for
    /// all, as in transformers.
    pub fn table_of(&self, documents: &Documents, device: &Device) -> Tensor<2> {
        let of_longest = self.values(0..documents.longest());
        let row = |position: usize| &of_longest[position * self.head_dim..][..self.head_dim];
        let values: Vec<f32> = documents.positions().flat_map(row).copied().collect();
        self.sent(values, documents.starts().len(), device)
    }

    fn values(&self, positions: Range<usize>) -> Vec<f32> {
        let (frequencies, scale) = self.frequencies(positions.end);
        let row = |position: usize| {
            let angles = frequencies.iter().map(move |frequency| position as f32 * frequency);
            angles.clone().map(f32::cos).chain(angles.map(f32::sin))
        };
        positions.flat_map(row).map(|x| x * scale).collect()
    }

    fn sent(&self, values: Vec<f32>, rows: usize, device: &Device) -> Tensor<2> {
        send(values, [rows, self.head_dim], &device.clone().without_autodiff())
    }

    /// Radians per position of each pair of elements, for a sequence of `length` tokens, and the factor of cosines and sines.
    pub fn frequencies(&self, length: usize) -> (Vec<f32>, f32) {
        let p = &self.parameters;
        let dim = self.head_dim as f64;
        let factor = p.factor.unwrap_or(1.0);
        let of_base = |base: f64| (0..self.head_dim / 2).map(move |i| base.powf(-2.0 * i as f64 / dim));
        let original = p.original_max_position_embeddings.unwrap_or(self.max_position_embeddings) as f64;
        let plain = of_base(p.rope_theta);
        let in_f32 = |frequencies: &mut dyn Iterator<Item = f64>| frequencies.map(|x| x as f32).collect();
        match p.rope_type {
            RopeType::Default => (in_f32(&mut { plain }), 1.0),
            RopeType::Linear => (in_f32(&mut plain.map(|x| x / factor)), 1.0),
            RopeType::Dynamic => {
                let longest = self.max_position_embeddings as f64;
                let stretched = factor * longest.max(length as f64) / longest - (factor - 1.0);
                (in_f32(&mut of_base(p.rope_theta * stretched.powf(dim / (dim - 2.0)))), 1.0)
            }
            RopeType::Llama3 => {
                let (low, high) = (p.low_freq_factor.unwrap_or(1.0), p.high_freq_factor.unwrap_or(4.0));
                let scaled = plain.map(|x| {
                    let rotations = original * x / (2.0 * PI);
                    let kept = ((rotations - low) / (high - low)).clamp(0.0, 1.0);
                    (1.0 - kept) * x / factor + kept * x
                });
                (in_f32(&mut { scaled }), 1.0)
            }
            RopeType::Yarn => {
                let pair_of = |rotations: f64| {
                    dim * (original / (rotations * 2.0 * PI)).ln() / (2.0 * p.rope_theta.ln())
                };
                let (mut low, mut high) =
                    (pair_of(p.beta_fast.unwrap_or(32.0)), pair_of(p.beta_slow.unwrap_or(1.0)));
                if p.truncate.unwrap_or(true) {
                    (low, high) = (low.floor(), high.ceil());
                }
                (low, high) = (low.max(0.0), high.min(dim - 1.0));
                if low == high {
                    high += 0.001;
                }
                let scaled = plain.enumerate().map(|(i, x)| {
                    let divided = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    divided * x / factor + (1.0 - divided) * x
                });
                (in_f32(&mut { scaled }), self.yarn_scale(factor) as f32)
            }
        }
    }

    fn yarn_scale(&self, factor: f64) -> f64 {
        let p = &self.parameters;
        let scale = |m: f64| if factor <= 1.0 { 1.0 } else { 0.1 * m * factor.ln() + 1.0 };
        let set = |m: Option<f64>| m.filter(|m| *m != 0.0);
        p.attention_factor.unwrap_or_else(|| match (set(p.mscale), set(p.mscale_all_dim)) {
            (Some(m), Some(all)) => scale(m) / scale(all),
            _ => scale(1.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::read;
    use super::*;

    fn rope(parameters: RopeParameters, max_position_embeddings: usize, head_dim: usize) -> Rope {
        assert_eq!(parameters.problem(), None);
        Rope { parameters, head_dim, max_position_embeddings }
    }

    fn of(rope_type: RopeType, factor: f64) -> RopeParameters {
        RopeParameters { rope_type, factor: Some(factor), ..RopeParameters::default() }
    }

    fn yarn() -> RopeParameters {
        RopeParameters { original_max_position_embeddings: Some(32), ..of(RopeType::Yarn, 4.0) }
    }

    /// Cosines and sines of position 7 of 10, by `LlamaRotaryEmbedding` of transformers 5.24.
    #[test]
    fn angles_are_those_of_transformers() {
        let llama3 = RopeParameters {
            rope_theta: 500_000.0,
            low_freq_factor: Some(1.0),
            high_freq_factor: Some(4.0),
            original_max_position_embeddings: Some(16),
            ..of(RopeType::Llama3, 8.0)
        };
        let all = RopeParameters {
            beta_fast: Some(16.0),
            beta_slow: Some(2.0),
            mscale: Some(0.7),
            mscale_all_dim: Some(0.5),
            truncate: Some(false),
            ..yarn()
        };
        let scaled = RopeParameters { attention_factor: Some(1.25), ..yarn() };
        let cases: [(Rope, &[f32]); 7] = [
            (
                rope(RopeParameters::default(), 64, 8),
                &[
                    0.753_902_26,
                    0.764_842_2,
                    0.997_551,
                    0.999_975_5,
                    0.656_986_6,
                    0.644_217_67,
                    0.069_942_85,
                    0.006_999_943,
                ],
            ),
            (
                rope(of(RopeType::Linear, 4.0), 64, 8),
                &[
                    -0.178_246_05,
                    0.984_726_55,
                    0.999_846_9,
                    0.999_998_45,
                    0.983_985_96,
                    0.174_108_13,
                    0.017_499_106,
                    0.001_749_999,
                ],
            ),
            (
                rope(of(RopeType::Dynamic, 2.0), 4, 8),
                &[
                    0.753_902_26,
                    0.904_337_05,
                    0.999_614_2,
                    0.999_998_45,
                    0.656_986_6,
                    0.426_819,
                    0.027_775_947,
                    0.001_749_999,
                ],
            ),
            (
                rope(llama3, 64, 16),
                &[
                    -0.628_788_8,
                    0.985_638_44,
                    0.999_458_7,
                    0.999_979_6,
                    0.999_999_2,
                    1.0,
                    1.0,
                    1.0,
                    -0.777_576_15,
                    0.168_869_33,
                    0.032_899_34,
                    0.006_381_039,
                    0.001_237_436_4,
                    2.399_671_6e-4,
                    4.653_509e-5,
                    9.024_212e-6,
                ],
            ),
            (
                rope(yarn(), 128, 16),
                &[
                    0.858_415_3,
                    0.212_020_32,
                    1.121_238_6,
                    1.136_886_4,
                    1.138_455,
                    1.138_612,
                    1.138_627_6,
                    1.138_629_3,
                    0.748_064_3,
                    1.118_715_5,
                    0.198_244_65,
                    0.062_979_44,
                    0.019_924_996,
                    0.006_301_127_4,
                    0.001_992_600_5,
                    6.301_16e-4,
                ],
            ),
            (
                rope(all, 128, 16),
                &[
                    0.773_449_9,
                    0.872_801_8,
                    1.010_259_2,
                    1.024_358,
                    1.025_771_5,
                    1.025_912_9,
                    1.025_927_1,
                    1.025_928_5,
                    0.674_021_36,
                    0.539_209_2,
                    0.178_622_51,
                    0.056_745_775,
                    0.017_952_833,
                    0.005_677_446,
                    0.001_795_374_2,
                    5.677_475e-4,
                ],
            ),
            (
                rope(scaled, 128, 16),
                &[
                    0.942_377_8,
                    0.232_758_25,
                    1.230_908_2,
                    1.248_086_5,
                    1.249_808_5,
                    1.249_980_8,
                    1.249_998_1,
                    1.25,
                    0.821_233_3,
                    1.228_138_3,
                    0.217_635_17,
                    0.069_139_525,
                    0.021_873_882,
                    0.006_917_447_3,
                    0.002_187_498_8,
                    6.917_483e-4,
                ],
            ),
        ];
        for (rope, expected) in cases {
            let found = read(rope.table(0..10, &Device::flex()));
            let found = &found[7 * rope.head_dim..8 * rope.head_dim];
            let gap = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(gap < 1e-6, "{:?}: {found:?}, not {expected:?}", rope.parameters);
        }
    }

    #[test]
    fn a_part_of_the_positions_has_the_rows_of_all() {
        for parameters in [RopeParameters::default(), yarn(), of(RopeType::Dynamic, 2.0)] {
            let rope = rope(parameters, 4, 8);
            let all = read(rope.table(0..10, &Device::flex()));
            assert_eq!(read(rope.table(6..10, &Device::flex())), all[6 * 8..]);
        }
    }

    #[test]
    fn missing_keys_and_those_without_effect_are_named() {
        let problem = |parameters: RopeParameters| parameters.problem().unwrap_or_default();
        let factor = RopeParameters { factor: Some(2.0), ..RopeParameters::default() };
        assert_eq!(problem(factor), "`factor` has no effect with `rope_type = \"default\"`");
        let yarn = RopeParameters { rope_type: RopeType::Yarn, ..RopeParameters::default() };
        assert_eq!(problem(yarn), "`rope_type = \"yarn\"` needs `factor`");
        let llama3 = of(RopeType::Llama3, 2.0);
        assert_eq!(problem(llama3), "`rope_type = \"llama3\"` needs `low_freq_factor`");
        let swapped = RopeParameters { low_freq_factor: Some(4.0), high_freq_factor: Some(1.0), ..llama3 };
        assert_eq!(problem(swapped), "`low_freq_factor` must be below `high_freq_factor` = 1, found 4");
    }
}
