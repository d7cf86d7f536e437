//! The table of a GPT-2, and its cache. What it computes is compared with transformers' values in tests/features/golden_lm.rs.

use super::*;
use crate::models::standard_kinds;
use crate::models::testing::read;
use burn::tensor::TensorData;
use data::{DataFacts, FieldData, FieldFacts, FieldKind, HostField};
use ddp::device::drawn;
use ddp::module::draw_lazy;
use serde_json::json;

const VOCABULARY: usize = 11;
const BLOCK: usize = 12;

#[test]
fn presets_have_as_many_parameters_as_the_published_models() {
    let (_, kind) = standard_kinds().into_iter().find(|(name, _)| *name == "gpt2").unwrap();
    let field = FieldFacts { shape: vec![BLOCK], kind: FieldKind::Index(VOCABULARY) };
    let facts = DataFacts { input: Some(field), ..DataFacts::default() };
    for (preset, expected) in [
        ("gpt2", 124_439_808_usize),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
    ] {
        let job = spec::JobTree::parse("job.toml", &format!("[model]\npreset = '{preset}'\n"), &[]);
        let read =
            job.read(|fields| fields.table("model").map(|mut fields| kind.configure(&mut fields, &facts)));
        let tensors = read.unwrap_or_else(|d| panic!("{d}")).0.unwrap().tensors().unwrap();
        let found: usize = tensors.iter().map(|tensor| tensor.shape.iter().product::<usize>()).sum();
        assert_eq!(found, expected, "{preset}");
        // As Conv1D has it.
        let qkv = tensors.iter().find(|tensor| tensor.name == "transformer.h.0.attn.c_attn.weight").unwrap();
        assert_eq!(qkv.shape[1], 3 * qkv.shape[0]);
    }
}

#[test]
fn config_json_gives_the_sizes_or_is_refused() {
    let (_, kind) = standard_kinds().into_iter().find(|(name, _)| *name == "gpt2").unwrap();
    let keys = |config: serde_json::Value| kind.keys_of_config(config.as_object().unwrap());
    let found =
        keys(json!({ "model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_inner": null, "attn_pdrop": 0.1 }))
            .unwrap();
    let expected = json!({
        "vocab_size": 50257, "n_positions": 1024, "n_layer": 12, "n_head": 4, "n_embd": 64, "n_inner": 256,
        "layer_norm_epsilon": 1e-5,
    });
    assert_eq!(serde_json::Value::Object(found), expected);
    let found = keys(
        json!({ "model_type": "gpt2", "num_attention_heads": 4, "num_hidden_layers": 2, "hidden_size": 96 }),
    )
    .unwrap();
    assert_eq!(
        ["n_head", "n_layer", "n_embd", "n_inner"].map(|key| found[key].as_u64().unwrap()),
        [4, 2, 96, 384]
    );
    for (config, why) in [
        (
            json!({ "model_type": "gpt2", "n_head": 8, "num_attention_heads": 4 }),
            "`n_head` and `num_attention_heads`",
        ),
        (json!({ "model_type": "llama" }), "found \"llama\""),
        (json!({ "model_type": "gpt2", "activation_function": "relu" }), "found \"relu\""),
        (
            json!({ "model_type": "gpt2", "scale_attn_by_inverse_layer_idx": true }),
            "`scale_attn_by_inverse_layer_idx`",
        ),
    ] {
        let found = keys(config).unwrap_err();
        assert!(found.contains(why), "{found}");
    }
}

#[test]
fn logits_with_a_cache_are_those_of_a_whole_forward_pass() {
    let config = Gpt2Config {
        vocab_size: VOCABULARY,
        n_positions: BLOCK,
        n_layer: 2,
        n_head: 2,
        n_embd: 16,
        n_inner: 24,
        layer_norm_epsilon: 1e-5,
        resid_pdrop: 0.1,
        embd_pdrop: 0.1,
        attn_pdrop: 0.1,
        // Larger than usual, so that attention is not uniform.
        initializer_range: 0.4,
    };
    let device = Device::flex();
    let net = drawn(&device, 5, || {
        let net = Gpt2::new(config, &device);
        draw_lazy(&net);
        net
    });
    let tokens = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 10, 8];
    let whole = |tokens: &[i64]| {
        let field = HostField { shape: vec![tokens.len()], data: FieldData::Index(tokens.to_vec()) };
        let all = read(net.forward(Input::from_host(&field, 1, &Device::flex())));
        all[all.len() - VOCABULARY..].to_vec()
    };
    let mut cache = KvCache::default();
    for new in [0..5, 5..6, 6..7, 7..12] {
        let next = TensorData::new(tokens[new.clone()].to_vec(), [1, new.len()]);
        let found = read(net.extend(Tensor::from_data(next, &device), &mut cache));
        let expected = whole(&tokens[..new.end]);
        let gap = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(gap < 1e-5, "{new:?}: {found:?}, {expected:?}");
    }
}
