//! The table of a Llama, and its cache. What it computes is compared with transformers' values in tests/features/golden.rs.

use super::*;
use crate::models::testing::read;
use crate::models::{ModelSource, standard_kinds};
use burn::tensor::TensorData;
use data::{DataFacts, FieldData, FieldFacts, FieldKind, HostField};
use ddp::device::drawn;
use ddp::module::draw_lazy;
use std::sync::Arc;

const VOCABULARY: usize = 11;
const BLOCK: usize = 12;

fn facts() -> DataFacts {
    let field = FieldFacts { shape: vec![BLOCK], kind: FieldKind::Index(VOCABULARY) };
    DataFacts { input: Some(field.clone()), target: Some(field), ..DataFacts::default() }
}

/// The model of a table's lines.
fn source(table: &str) -> Result<Arc<dyn ModelSource>, String> {
    let (_, kind) = standard_kinds().into_iter().find(|(name, _)| *name == "llama").unwrap();
    let job = spec::JobTree::parse("job.toml", &format!("[model]\n{table}\n"), &[]);
    let read =
        job.read(|fields| fields.table("model").map(|mut fields| kind.configure(&mut fields, &facts())));
    read.map(|(source, _)| source.unwrap()).map_err(|e| e.to_string())
}

/// The numbers of parameters that are published, or follow from the published files.
#[test]
fn presets_have_as_many_parameters_as_the_published_models() {
    for (preset, expected) in [
        ("smollm2-135m", 134_515_008),
        ("smollm2-360m", 361_821_120),
        ("smollm2-1.7b", 1_711_376_384),
        ("llama-3.2-1b", 1_235_814_400_usize),
        ("llama-3.2-3b", 3_212_749_824),
        ("llama-3.1-8b", 8_030_261_248),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen2.5-1.5b", 1_543_714_304),
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-1.7b", 1_720_574_976),
        ("mistral-7b", 7_241_732_096),
    ] {
        let tensors = source(&format!("preset = '{preset}'")).unwrap().tensors().unwrap();
        let found: usize = tensors.iter().map(|tensor| tensor.shape.iter().product::<usize>()).sum();
        assert_eq!(found, expected, "{preset}");
    }
}

#[test]
fn keys_that_contradict_each_other_are_named() {
    for (table, expected) in [
        ("num_key_value_heads = 3", "must divide num_attention_heads = 4, found 3"),
        (
            "num_attention_heads = 5",
            "must be a multiple of num_attention_heads = 5 if `head_dim` is not set, found 64",
        ),
        ("head_dim = 7", "must be even, found 7"),
        ("rope_parameters = { factor = 2.0 }", "`factor` has no effect with `rope_type = \"default\"`"),
        ("rope_parameters = { rope_type = 'linear' }", "`rope_type = \"linear\"` needs `factor`"),
        ("rope_parameters = { rope_typ = 'linear' }", "rope_typ"),
        (
            "head_dim = 2\nrope_parameters = { rope_type = 'dynamic', factor = 2.0 }",
            "`dynamic` needs heads of 4",
        ),
        ("model_type = 'qwen2'\nattention_bias = true", "has no effect with `model_type = \"qwen2\"`"),
        ("vocab_size = 10", "the data set requires at least 11, found 10"),
        ("max_position_embeddings = 11", "the data set requires at least 12, found 11"),
        ("preset = 'smollm2-135m'\nvocab_size = 10", "the data set requires at least 11, found 10"),
    ] {
        let problems = source(table).err().unwrap_or_else(|| panic!("{table} is accepted"));
        assert!(problems.contains(expected), "{table}: {problems}");
    }
    for table in [
        "max_position_embeddings = 8\nrope_parameters = { rope_type = 'dynamic', factor = 2.0 }",
        "rope_parameters = { rope_type = 'dynamic', factor = 2.0 }",
        "num_attention_heads = 8",
        "hidden_size = 63\nhead_dim = 16",
    ] {
        source(table).unwrap_or_else(|problems| panic!("{problems}"));
    }
}

#[test]
fn heads_follow_from_the_keys_that_are_set() {
    let shape = |table: &str, name: &str| {
        let tensors = source(table).unwrap().tensors().unwrap();
        let found =
            tensors.into_iter().find(|tensor| tensor.name == format!("model.layers.0.self_attn.{name}"));
        found.map(|tensor| tensor.shape)
    };
    assert_eq!(shape("", "k_proj.weight"), Some(vec![32, 64]));
    // As in a config.json without `num_key_value_heads` and `head_dim`.
    assert_eq!(shape("num_attention_heads = 8", "k_proj.weight"), Some(vec![64, 64]));
    assert_eq!(shape("hidden_size = 96", "q_proj.weight"), Some(vec![96, 96]));
    assert_eq!(shape("", "q_proj.bias"), None);
    assert_eq!(shape("model_type = 'qwen2'", "q_proj.bias"), Some(vec![64]));
    assert_eq!(shape("model_type = 'qwen2'", "o_proj.bias"), None);
    assert_eq!(shape("attention_bias = true", "o_proj.bias"), Some(vec![64]));
    assert_eq!(shape("model_type = 'qwen3'", "q_norm.weight"), Some(vec![16]));
}

fn config() -> LlamaConfig {
    LlamaConfig {
        vocab_size: VOCABULARY,
        hidden_size: 16,
        intermediate_size: 24,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 6,
        rms_norm_eps: 1e-6,
        max_position_embeddings: BLOCK,
        rope_parameters: RopeParameters::default(),
        tie_word_embeddings: false,
        qkv_bias: false,
        output_bias: false,
        mlp_bias: false,
        qk_norm: false,
        sliding_window: None,
        max_window_layers: 0,
        attention_dropout: 0.0,
        // Larger than usual, so that attention is not uniform.
        initializer_range: 0.4,
    }
}

#[test]
fn a_window_applies_from_its_first_block_on() {
    let config = LlamaConfig { sliding_window: Some(3), max_window_layers: 1, ..config() };
    assert_eq!([0, 1, 2].map(|layer| config.sees(layer)), [Sees::Past, Sees::Window(3), Sees::Window(3)]);
}

fn net(config: LlamaConfig) -> Llama {
    let device = Device::flex();
    drawn(&device, 5, || {
        let net = Llama::new(config, &device);
        draw_lazy(&net);
        net
    })
}

/// The logits after the last token, by a forward pass over all of them.
fn whole(net: &Llama, tokens: &[i64]) -> Vec<f32> {
    let field = HostField { shape: vec![tokens.len()], data: FieldData::Index(tokens.to_vec()) };
    let all = read(net.forward(Input::from_host(&field, 1, &Device::flex())));
    all[all.len() - VOCABULARY..].to_vec()
}

#[test]
fn logits_with_a_cache_are_those_of_a_whole_forward_pass() {
    let tokens = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 10, 8];
    for config in [
        config(),
        LlamaConfig { tie_word_embeddings: true, qk_norm: true, qkv_bias: true, ..config() },
        LlamaConfig { sliding_window: Some(3), max_window_layers: 1, ..config() },
        LlamaConfig { num_key_value_heads: 1, sliding_window: Some(1), ..config() },
    ] {
        let net = net(config);
        for first in [1, 2, 5, 12] {
            let (mut cache, mut at) = (KvCache::default(), 0);
            // A prompt of `first` tokens, then one token at a time, and two at the end.
            while at < tokens.len() {
                let new = match at {
                    0 => first,
                    10 => 2,
                    _ => 1,
                };
                let next = TensorData::new(tokens[at..at + new].to_vec(), [1, new]);
                let found = read(net.extend(Tensor::from_data(next, &Device::flex()), &mut cache));
                at += new;
                assert_eq!(cache.tokens(), at);
                let expected = whole(&net, &tokens[..at]);
                let gap = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(gap < 1e-5, "{at} tokens, prompt of {first}, {config:?}: {found:?}, {expected:?}");
            }
        }
        // The logits depend on the order of earlier tokens, as far as they are seen.
        if config.sliding_window != Some(1) {
            let swapped = whole(&net, &[3, 4, 1]);
            assert!(whole(&net, &[4, 3, 1]).iter().zip(&swapped).any(|(a, b)| (a - b).abs() > 1e-3));
        }
    }
}
