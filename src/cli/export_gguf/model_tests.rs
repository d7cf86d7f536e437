use super::*;
use serde_json::json;

fn of(model_type: &str, more: Json) -> Result<Architecture> {
    let mut config = json!({
        "model_type": model_type, "vocab_size": 300, "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "rms_norm_eps": 1e-5, "max_position_embeddings": 32, "tie_word_embeddings": false,
        "rope_parameters": { "rope_type": "default", "rope_theta": 1e4 },
        "n_positions": 32, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_inner": 256, "layer_norm_epsilon": 1e-5,
        "activation_function": "gelu_new",
    });
    let config = config.as_object_mut().unwrap();
    config.extend(more.as_object().unwrap().clone());
    Architecture::of(config)
}

#[test]
fn tensors_have_the_names_of_llama_cpp() {
    use Arrangement::{Pairs, Same, Transposed};
    let llama = of("mistral", json!({})).unwrap();
    let gpt2 = of("gpt2", json!({ "tie_word_embeddings": true })).unwrap();
    let qwen3 = of("qwen3", json!({})).unwrap();
    for (model, own, theirs, arrangement) in [
        (&llama, "model.layers.1.self_attn.q_proj.weight", "blk.1.attn_q.weight", Pairs(4)),
        (&llama, "model.layers.0.self_attn.k_proj.bias", "blk.0.attn_k.bias", Pairs(2)),
        (&llama, "model.layers.0.self_attn.v_proj.weight", "blk.0.attn_v.weight", Same),
        (&llama, "lm_head.weight", "output.weight", Same),
        (&qwen3, "model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight", Same),
        (&qwen3, "model.layers.0.self_attn.q_norm.weight", "blk.0.attn_q_norm.weight", Same),
        (&gpt2, "transformer.h.11.attn.c_attn.weight", "blk.11.attn_qkv.weight", Transposed),
        (&gpt2, "transformer.h.1.mlp.c_proj.bias", "blk.1.ffn_down.bias", Same),
        (&gpt2, "transformer.wpe.weight", "position_embd.weight", Same),
    ] {
        assert_eq!(model.tensor(own).unwrap(), Some((theirs.to_owned(), arrangement)), "{own}");
    }
    assert_eq!(gpt2.tensor("lm_head.weight").unwrap(), None);
    for name in ["model.layers.x.mlp.up_proj.weight", "model.layers.0.mlp.fc.weight", "weight"] {
        assert!(llama.tensor(name).is_err(), "{name}");
    }
}

#[test]
fn sizes_are_in_the_metadata() {
    let keys = |model: Architecture| -> Vec<String> {
        model.metadata.iter().map(|(key, value)| format!("{key} {value:?}")).collect()
    };
    let found = keys(of("qwen3", json!({ "head_dim": 24 })).unwrap());
    let lengths = ["qwen3.attention.key_length U32(24)", "qwen3.attention.value_length U32(24)"];
    assert!(lengths.iter().all(|key| found.contains(&(*key).to_owned())), "{found:?}");
    let found = keys(of("llama", json!({})).unwrap());
    assert!(found.contains(&"llama.attention.head_count_kv U32(2)".to_owned()), "{found:?}");
    assert!(!found.iter().any(|key| key.contains("key_length")));
    let found = keys(of("gpt2", json!({})).unwrap());
    assert!(found.contains(&"gpt2.feed_forward_length U32(256)".to_owned()), "{found:?}");
}

#[test]
fn what_llama_cpp_computes_otherwise_is_refused() {
    for (model_type, more, why) in [
        ("vit", json!({}), "`vit`"),
        ("gpt2", json!({ "activation_function": "gelu" }), "activation is `gelu`"),
        ("mistral", json!({ "sliding_window": 16 }), "16 of 32 tokens"),
        ("qwen2", json!({ "head_dim": 24 }), "qwen2 needs `head_dim`"),
        ("qwen3", json!({ "attention_bias": true }), "no biases"),
        (
            "llama",
            json!({ "rope_parameters": { "rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0 } }),
            "dynamic",
        ),
    ] {
        let error = of(model_type, more).unwrap_err();
        assert_eq!(error.kind, base::error::ErrorKind::Spec);
        assert!(error.message.contains(why), "{error}");
    }
    assert!(of("mistral", json!({ "sliding_window": 32 })).is_ok());
    assert!(of("gpt2", json!({ "activation_function": "gelu_pytorch_tanh" })).is_ok());
}
