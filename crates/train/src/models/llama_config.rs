//! The keys of a Llama that follow from Hugging Face's config.json, with the defaults of transformers 5.

use serde_json::{Map, Value as Json, json};

/// Keys without a default.
const REQUIRED: [&str; 6] = [
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
];

/// Keys with the defaults of transformers' classes.
fn optional() -> [(&'static str, Json); 7] {
    [
        ("rms_norm_eps", json!(1e-6)),
        ("tie_word_embeddings", json!(false)),
        ("attention_bias", json!(false)),
        ("mlp_bias", json!(false)),
        ("attention_dropout", json!(0.0)),
        ("initializer_range", json!(0.02)),
        ("hidden_act", json!("silu")),
    ]
}

/// The keys of the `[model]` table.
pub(super) fn keys(config: &Map<String, Json>) -> Result<Map<String, Json>, String> {
    let set = |key: &str| config.get(key).filter(|value| !value.is_null());
    let model_type = set("model_type").and_then(Json::as_str).unwrap_or_default();
    if !matches!(model_type, "llama" | "mistral" | "qwen2" | "qwen3") {
        return Err(format!("expected `model_type` llama, mistral, qwen2 or qwen3, found \"{model_type}\""));
    }
    let mut keys = Map::from_iter([("model_type".to_owned(), json!(model_type))]);
    for key in REQUIRED {
        let value = set(key).ok_or_else(|| format!("`{key}` is missing"))?;
        keys.insert(key.to_owned(), value.clone());
    }
    for (key, default) in optional() {
        keys.insert(key.to_owned(), set(key).cloned().unwrap_or(default));
    }
    // It has biases by definition, of three of the four layers.
    if model_type == "qwen2" {
        keys.remove("attention_bias");
    }
    if let Some(other) = keys.remove("hidden_act").filter(|activation| activation != "silu") {
        return Err(format!("expected `hidden_act` \"silu\", found {other}"));
    }
    if set("partial_rotary_factor").is_some_and(|factor| factor.as_f64() != Some(1.0)) {
        return Err("`partial_rotary_factor` is not supported".to_owned());
    }

    let number = |key: &str| set(key).and_then(Json::as_u64);
    let heads = number("num_attention_heads").unwrap_or(1).max(1);
    let head_dim = number("head_dim").or_else(|| Some(number("hidden_size")? / heads));
    keys.insert(
        "num_key_value_heads".to_owned(),
        set("num_key_value_heads").cloned().unwrap_or(json!(heads)),
    );
    keys.insert("head_dim".to_owned(), json!(head_dim));
    keys.insert("rope_parameters".to_owned(), Json::Object(rope(config)?));
    keys.extend(window(config, model_type)?);
    Ok(keys)
}

/// `rope_parameters`, or as up to transformers 4 `rope_theta` and `rope_scaling`.
fn rope(config: &Map<String, Json>) -> Result<Map<String, Json>, String> {
    let object = |key: &str| config.get(key).and_then(Json::as_object);
    let mut rope = object("rope_parameters").or_else(|| object("rope_scaling")).cloned().unwrap_or_default();
    rope.retain(|_, value| !value.is_null());
    // Before transformers 4.43.
    if let Some(name) = rope.remove("type") {
        rope.entry("rope_type").or_insert(name);
    }
    rope.entry("rope_type").or_insert(json!("default"));
    let theta = config.get("rope_theta").filter(|theta| !theta.is_null());
    rope.entry("rope_theta").or_insert(theta.cloned().unwrap_or(json!(10_000.0)));
    if rope.get("partial_rotary_factor") == Some(&json!(1.0)) {
        rope.remove("partial_rotary_factor");
    }
    const KNOWN: [&str; 12] = [
        "rope_type",
        "rope_theta",
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "truncate",
    ];
    match rope.keys().find(|key| !KNOWN.contains(&key.as_str())) {
        Some(other) => Err(format!("rotary positions with `{other}` are not supported")),
        None => Ok(rope),
    }
}

/// The sliding window, and the first block that has it.
fn window(config: &Map<String, Json>, model_type: &str) -> Result<Map<String, Json>, String> {
    let number = |key: &str| config.get(key).and_then(Json::as_u64);
    let usual = || json!(number("sliding_window").unwrap_or(4096));
    let is_null = config.get("sliding_window").is_some_and(Json::is_null);
    let is_used = config.get("use_sliding_window").and_then(Json::as_bool).unwrap_or(false);
    let mut keys = Map::new();
    match model_type {
        "mistral" if !is_null => {
            keys.insert("sliding_window".to_owned(), usual());
        }
        "qwen2" | "qwen3" if is_used && !is_null => {
            let first = match config.get("layer_types").and_then(Json::as_array) {
                Some(types) => {
                    let first = types.iter().take_while(|name| *name == "full_attention").count();
                    if types[first..].iter().any(|name| name != "sliding_attention") {
                        return Err("blocks with and without a window in turn are not supported".to_owned());
                    }
                    first as u64
                }
                None => number("max_window_layers").unwrap_or(28),
            };
            keys.insert("sliding_window".to_owned(), usual());
            keys.insert("max_window_layers".to_owned(), json!(first));
        }
        _ => {}
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(more: Json) -> Map<String, Json> {
        let sizes = json!({
            "model_type": "llama", "vocab_size": 384, "hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 4,
            "num_attention_heads": 4, "max_position_embeddings": 128, "hidden_act": "silu", "use_cache": true,
        });
        let mut all = sizes.as_object().unwrap().clone();
        all.extend(more.as_object().unwrap().clone());
        all
    }

    fn key(more: Json, key: &str) -> Json {
        keys(&config(more)).unwrap().remove(key).unwrap_or_default()
    }

    #[test]
    fn keys_that_are_missing_have_the_defaults_of_transformers() {
        let found = Json::Object(keys(&config(json!({ "head_dim": null, "attention_bias": null }))).unwrap());
        let expected = json!({
            "model_type": "llama", "vocab_size": 384, "hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 4,
            "num_attention_heads": 4, "max_position_embeddings": 128, "num_key_value_heads": 4, "head_dim": 16,
            "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "attention_bias": false, "mlp_bias": false,
            "attention_dropout": 0.0, "initializer_range": 0.02,
            "rope_parameters": { "rope_type": "default", "rope_theta": 10000.0 },
        });
        assert_eq!(found, expected);
        assert_eq!(key(json!({ "model_type": "qwen2" }), "attention_bias"), json!(null));
    }

    #[test]
    fn rotary_positions_are_read_from_old_and_new_files() {
        let scaling =
            json!({ "rope_theta": 5e5, "rope_scaling": { "type": "linear", "factor": 4.0, "mscale": null } });
        let expected = json!({ "rope_type": "linear", "rope_theta": 5e5, "factor": 4.0 });
        assert_eq!(key(scaling, "rope_parameters"), expected);
        let parameters =
            json!({ "rope_parameters": { "rope_type": "linear", "rope_theta": 5e5, "factor": 4.0 } });
        assert_eq!(key(parameters, "rope_parameters"), expected);
        let none = json!({ "rope_theta": 5e5, "rope_scaling": null });
        assert_eq!(key(none, "rope_parameters"), json!({ "rope_type": "default", "rope_theta": 5e5 }));
    }

    #[test]
    fn windows_apply_where_transformers_applies_them() {
        let window = |more: Json| {
            let keys = keys(&config(more)).unwrap();
            ["sliding_window", "max_window_layers"].map(|key| keys.get(key).and_then(Json::as_u64))
        };
        // A file of Mistral without the key is of its first version.
        assert_eq!(window(json!({ "model_type": "mistral" })), [Some(4096), None]);
        assert_eq!(window(json!({ "model_type": "mistral", "sliding_window": null })), [None, None]);
        assert_eq!(window(json!({ "model_type": "mistral", "sliding_window": 8 })), [Some(8), None]);
        assert_eq!(window(json!({ "sliding_window": 8 })), [None, None]);
        assert_eq!(window(json!({ "model_type": "qwen2", "sliding_window": 8 })), [None, None]);
        let used = json!({ "model_type": "qwen2", "sliding_window": 8, "use_sliding_window": true, "max_window_layers": 3 });
        assert_eq!(window(used), [Some(8), Some(3)]);
        let types = json!(["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"]);
        let listed = json!({ "model_type": "qwen3", "sliding_window": 8, "use_sliding_window": true, "layer_types": types });
        assert_eq!(window(listed), [Some(8), Some(1)]);
    }

    #[test]
    fn what_would_be_computed_otherwise_is_refused() {
        let types = json!(["sliding_attention", "full_attention"]);
        for (more, expected) in [
            (json!({ "model_type": "gemma" }), "found \"gemma\""),
            (json!({ "vocab_size": null }), "`vocab_size` is missing"),
            (json!({ "hidden_act": "gelu" }), "found \"gelu\""),
            (json!({ "partial_rotary_factor": 0.5 }), "`partial_rotary_factor` is not supported"),
            (
                json!({ "rope_parameters": { "rope_theta": 1e4, "partial_rotary_factor": 0.5 } }),
                "`partial_rotary_factor`",
            ),
            (json!({ "rope_scaling": { "type": "longrope", "long_factor": [1.0] } }), "`long_factor`"),
            (
                json!({ "model_type": "qwen3", "use_sliding_window": true, "layer_types": types }),
                "with and without a window in turn",
            ),
        ] {
            let why = keys(&config(more.clone())).unwrap_err();
            assert!(why.contains(expected), "{more}: {why}");
        }
    }
}
