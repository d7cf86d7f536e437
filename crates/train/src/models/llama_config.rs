//! The keys of a Llama that follow from Hugging Face's config.json, with the defaults of transformers 5.

use super::LlamaConfig;
use super::llama_table::Architecture;
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
fn optional() -> [(&'static str, Json); 3] {
    [
        ("rms_norm_eps", json!(1e-6)),
        ("tie_word_embeddings", json!(false)),
        // Only for some, below.
        ("attention_bias", json!(false)),
    ]
}

/// The keys of the `[model]` table. Dropout and initial values are the spec's.
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
    // What the others have or lack by definition is ignored there.
    let mlp_bias = set("mlp_bias").filter(|_| model_type == "llama").cloned();
    keys.insert("mlp_bias".to_owned(), mlp_bias.unwrap_or(json!(false)));
    if matches!(model_type, "mistral" | "qwen2") {
        keys.insert("attention_bias".to_owned(), json!(false));
    }
    match set("hidden_act") {
        Some(other) if other != "silu" && other != "swish" => {
            return Err(format!("expected `hidden_act` \"silu\", found {other}"));
        }
        _ => {}
    }
    if set("partial_rotary_factor").is_some_and(|factor| factor.as_f64() != Some(1.0)) {
        return Err("`partial_rotary_factor` is not supported".to_owned());
    }

    // Null, in all files, means what follows from the others.
    let absent = |key: &str| !config.contains_key(key);
    let kv_heads = match model_type {
        "mistral" if absent("num_key_value_heads") => json!(8),
        "qwen2" | "qwen3" if absent("num_key_value_heads") => json!(32),
        _ => set("num_key_value_heads").unwrap_or(&keys["num_attention_heads"]).clone(),
    };
    keys.insert("num_key_value_heads".to_owned(), kv_heads);
    let divided = || {
        let [hidden, heads] = ["hidden_size", "num_attention_heads"].map(|key| config[key].as_u64());
        hidden.zip(heads.filter(|heads| *heads > 0)).map(|(hidden, heads)| json!(hidden / heads))
    };
    let head_dim = match set("head_dim") {
        Some(head_dim) => Some(head_dim.clone()),
        None if model_type == "qwen3" && absent("head_dim") => Some(json!(128)),
        None => divided(),
    };
    // Otherwise the sizes that it follows from are reported.
    keys.extend(head_dim.map(|head_dim| ("head_dim".to_owned(), head_dim)));
    keys.insert("rope_parameters".to_owned(), Json::Object(rope(config)?));
    let [width, first] = window(config, model_type)?;
    keys.insert("sliding_window".to_owned(), width);
    keys.insert("max_window_layers".to_owned(), first);
    Ok(keys)
}

/// `rope_parameters`, or as up to transformers 4 `rope_theta` and `rope_scaling`.
fn rope(config: &Map<String, Json>) -> Result<Map<String, Json>, String> {
    let table = |key: &str| match config.get(key) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::Object(table)) => Ok(Some(table).filter(|table| !table.is_empty())),
        Some(other) => Err(format!("expected `{key}` to be a table, found {other}")),
    };
    let mut rope = match (table("rope_scaling")?, table("rope_parameters")?) {
        (Some(old), Some(new)) if old != new => {
            return Err("`rope_scaling` and `rope_parameters` are different: remove one".to_owned());
        }
        (table, None) | (None, table) | (Some(_), table) => table.cloned().unwrap_or_default(),
    };
    rope.retain(|_, value| !value.is_null());
    // Before transformers 4.43.
    if let Some(name) = rope.remove("type") {
        rope.entry("rope_type").or_insert(name);
    }
    rope.entry("rope_type").or_insert(json!("default"));
    let set = |key: &str| config.get(key).filter(|value| !value.is_null());
    rope.entry("rope_theta").or_insert(set("rope_theta").cloned().unwrap_or(json!(10_000.0)));
    if rope.get("partial_rotary_factor").and_then(Json::as_f64) == Some(1.0) {
        rope.remove("partial_rotary_factor");
    }
    let rope_type = rope["rope_type"].as_str().unwrap_or_default().to_owned();
    const ORIGINAL: &str = "original_max_position_embeddings";
    if matches!(rope_type.as_str(), "llama3" | "yarn") {
        // It comes before the table's.
        rope.extend(set(ORIGINAL).map(|original| (ORIGINAL.to_owned(), original.clone())));
    }
    if rope_type == "yarn" && !rope.contains_key("factor") {
        let longest = set("max_position_embeddings").and_then(Json::as_f64);
        let ratio = longest.zip(rope.get(ORIGINAL).and_then(Json::as_f64)).map(|(a, b)| json!(a / b));
        rope.extend(ratio.map(|ratio| ("factor".to_owned(), ratio)));
    }
    // Keys that transformers ignores for this type.
    const KNOWN: [&str; 12] = [
        "rope_type",
        "rope_theta",
        "factor",
        ORIGINAL,
        "low_freq_factor",
        "high_freq_factor",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "truncate",
    ];
    let used = match rope_type.as_str() {
        "default" => 2,
        "linear" | "dynamic" => 3,
        _ => KNOWN.len(),
    };
    rope.retain(|key, _| !KNOWN[used..].contains(&key.as_str()));
    match rope.keys().find(|key| !KNOWN.contains(&key.as_str())) {
        Some(other) => Err(format!("rotary positions with `{other}` are not supported")),
        None => Ok(rope),
    }
}

/// The sliding window, null without one, and the first block that has it.
fn window(config: &Map<String, Json>, model_type: &str) -> Result<[Json; 2], String> {
    let none = [Json::Null, json!(0)];
    let width = config.get("sliding_window").cloned().unwrap_or(json!(4096));
    let is_used = match config.get("use_sliding_window") {
        None | Some(Json::Null) => false,
        Some(Json::Bool(used)) => *used,
        Some(other) => return Err(format!("expected `use_sliding_window` true or false, found {other}")),
    };
    if model_type == "mistral" {
        return Ok([width, json!(0)]);
    }
    let has_window = matches!(model_type, "qwen2" | "qwen3") && is_used && !width.is_null();
    if let Some(Json::Array(types)) = config.get("layer_types") {
        let first = types.iter().take_while(|name| *name == "full_attention").count();
        let rest = &types[first..];
        if json!(types.len()) != config["num_hidden_layers"]
            || rest.iter().any(|name| name != "sliding_attention")
        {
            return Err(
                "`layer_types` other than `full_attention`, then `sliding_attention`, of all blocks are not \
                        supported"
                    .to_owned(),
            );
        }
        return match (has_window, rest.is_empty()) {
            (_, true) => Ok(none),
            (true, false) => Ok([width, json!(first)]),
            (false, false) => Err("`layer_types` has `sliding_attention` without a window".to_owned()),
        };
    }
    let first = config.get("max_window_layers").cloned().unwrap_or(json!(28));
    Ok(if has_window { [width, first] } else { none })
}

/// The config.json of a model, without the tokens that begin and end a text; `None` if no class of transformers has all that it has.
pub(super) fn config_json(config: &LlamaConfig, of: Architecture) -> Option<Map<String, Json>> {
    use Architecture::{Llama, Mistral, Qwen2, Qwen3};
    let has_window = config.sliding_window.is_some() && config.max_window_layers < config.num_hidden_layers;
    let is_supported = match of {
        Llama => !has_window,
        Mistral => !config.output_bias && !config.mlp_bias && config.max_window_layers == 0,
        Qwen2 => !config.mlp_bias,
        Qwen3 => !config.mlp_bias,
    };
    if !is_supported {
        return None;
    }
    let class = match of {
        Llama => "LlamaForCausalLM",
        Mistral => "MistralForCausalLM",
        Qwen2 => "Qwen2ForCausalLM",
        Qwen3 => "Qwen3ForCausalLM",
    };
    let mut rope = serde_json::to_value(config.rope_parameters).ok()?;
    rope.as_object_mut()?.retain(|_, value| !value.is_null());
    let mut json = json!({
        "architectures": [class],
        "model_type": of,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "max_position_embeddings": config.max_position_embeddings,
        "rope_parameters": rope,
        "tie_word_embeddings": config.tie_word_embeddings,
        "attention_dropout": config.attention_dropout,
        "initializer_range": config.initializer_range,
    });
    let json = json.as_object_mut()?;
    let mut add = |key: &str, value: Json| json.insert(key.to_owned(), value);
    if matches!(of, Llama | Qwen3) {
        add("attention_bias", json!(config.output_bias));
    }
    if of == Llama {
        add("mlp_bias", json!(config.mlp_bias));
    } else {
        add("sliding_window", json!(config.sliding_window.filter(|_| has_window)));
    }
    if matches!(of, Qwen2 | Qwen3) {
        let first = if has_window { config.max_window_layers } else { config.num_hidden_layers };
        let types = (0..config.num_hidden_layers)
            .map(|layer| if layer < first { "full_attention" } else { "sliding_attention" });
        add("layer_types", types.collect());
        add("max_window_layers", json!(first));
        add("use_sliding_window", json!(has_window));
    }
    Some(std::mem::take(json))
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
            "sliding_window": null, "max_window_layers": 0,
            "rope_parameters": { "rope_type": "default", "rope_theta": 10000.0 },
        });
        assert_eq!(found, expected);
        let of =
            |model_type: &str, name: &str| key(json!({ "model_type": model_type, "mlp_bias": true }), name);
        let kv_heads = ["llama", "mistral", "qwen2", "qwen3"].map(|name| of(name, "num_key_value_heads"));
        assert_eq!(kv_heads, [json!(4), json!(8), json!(32), json!(32)]);
        assert_eq!(
            ["llama", "mistral", "qwen3"].map(|name| of(name, "head_dim")),
            [json!(16), json!(16), json!(128)]
        );
        assert_eq!(
            ["llama", "mistral", "qwen3"].map(|name| of(name, "mlp_bias")),
            [true, false, false].map(Json::Bool)
        );
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
        // The top level comes first; what the type has no use for is left out, as transformers ignores it.
        let scaling = json!({ "rope_type": "yarn", "factor": null, "original_max_position_embeddings": 64 });
        let more = json!({ "rope_scaling": scaling, "original_max_position_embeddings": 32 });
        let expected = json!({ "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32 });
        assert_eq!(key(more, "rope_parameters"), expected);
        let more = json!({ "rope_parameters": { "rope_theta": 1e4, "factor": 4.0 }, "rope_scaling": {} });
        assert_eq!(key(more, "rope_parameters"), json!({ "rope_type": "default", "rope_theta": 1e4 }));
        let none = json!({ "rope_theta": 5e5, "rope_scaling": null });
        assert_eq!(key(none, "rope_parameters"), json!({ "rope_type": "default", "rope_theta": 5e5 }));
    }

    #[test]
    fn windows_apply_where_transformers_applies_them() {
        let window = |more: Json| {
            let keys = keys(&config(more)).unwrap();
            ["sliding_window", "max_window_layers"].map(|key| keys[key].as_i64())
        };
        // A file of Mistral without the key is of its first version.
        assert_eq!(window(json!({ "model_type": "mistral" })), [Some(4096), Some(0)]);
        assert_eq!(window(json!({ "model_type": "mistral", "sliding_window": null })), [None, Some(0)]);
        assert_eq!(window(json!({ "model_type": "mistral", "sliding_window": 8 })), [Some(8), Some(0)]);
        assert_eq!(window(json!({ "sliding_window": 8 })), [None, Some(0)]);
        assert_eq!(window(json!({ "model_type": "qwen2", "sliding_window": 8 })), [None, Some(0)]);
        let used = json!({ "model_type": "qwen2", "sliding_window": 8, "use_sliding_window": true, "max_window_layers": 3 });
        assert_eq!(window(used), [Some(8), Some(3)]);
        // As it is: the table's range is for the reader of the spec.
        assert_eq!(window(json!({ "model_type": "mistral", "sliding_window": -1 })), [Some(-1), Some(0)]);
        let types = json!(["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"]);
        let listed = json!({ "model_type": "qwen3", "sliding_window": 8, "use_sliding_window": true, "layer_types": types });
        assert_eq!(window(listed), [Some(8), Some(1)]);
    }

    #[test]
    fn what_would_be_computed_otherwise_is_refused() {
        let types = json!(["sliding_attention", "full_attention", "full_attention", "full_attention"]);
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
                "`layer_types`",
            ),
            (json!({ "model_type": "qwen3", "use_sliding_window": "true" }), "expected `use_sliding_window`"),
            (
                json!({ "rope_scaling": { "type": "linear", "factor": 4.0 }, "rope_parameters": { "rope_theta": 1e4 } }),
                "are different",
            ),
            (json!({ "rope_scaling": "linear" }), "expected `rope_scaling` to be a table"),
        ] {
            let why = keys(&config(more.clone())).unwrap_err();
            assert!(why.contains(expected), "{more}: {why}");
        }
    }

    /// A model's keys, its config.json, and the keys of that.
    fn of_its_config(table: &str) -> (Map<String, Json>, Option<Map<String, Json>>) {
        let text = format!("[model]\nvocab_size = 300\nmax_position_embeddings = 64\n{table}");
        let tree = spec::JobTree::parse("job.toml", &text, &[]);
        let facts = data::FieldFacts { shape: vec![16], kind: data::FieldKind::Index(257) };
        let facts = data::DataFacts { input: Some(facts.clone()), target: Some(facts), ..Default::default() };
        let kind = super::super::llama_table::LlamaKind;
        use super::super::ModelKind;
        let read = tree.read(|root| kind.configure(&mut root.section("model"), &facts).config_json(&facts));
        let (json, values) = read.unwrap();
        let set = values.into_iter().map(|value| {
            (value.key.trim_start_matches("model.").to_owned(), serde_json::to_value(value.value).unwrap())
        });
        (set.collect(), json)
    }

    #[test]
    fn the_config_of_a_model_gives_its_keys() {
        for table in [
            "",
            "tie_word_embeddings = true\nattention_bias = true\nmlp_bias = true",
            "rope_parameters = { rope_type = 'yarn', rope_theta = 1e4, factor = 4.0, original_max_position_embeddings = 16 }",
            "rope_parameters = { rope_type = 'linear', factor = 2.0, rope_theta = 500.0 }",
            "model_type = 'mistral'\nsliding_window = 5\nnum_key_value_heads = 1",
            "model_type = 'mistral'",
            "model_type = 'qwen2'\nsliding_window = 5\nmax_window_layers = 1",
            "model_type = 'qwen2'",
            "model_type = 'qwen3'\nhead_dim = 24\nattention_bias = true\nrms_norm_eps = 1e-6",
        ] {
            let (set, json) = of_its_config(table);
            let found = keys(&json.unwrap()).unwrap();
            for (key, value) in &found {
                let own = set.get(key).cloned().unwrap_or(Json::Null);
                let same = match (own.as_f64(), value.as_f64()) {
                    (Some(own), Some(value)) => own == value,
                    _ => own == *value,
                };
                assert!(same, "{table}: {key} is {own}, and {value} by its config.json");
            }
            assert!(found.len() > 12);
        }
        for table in ["sliding_window = 5", "model_type = 'qwen3'\nmlp_bias = true"] {
            assert_eq!(of_its_config(table).1, None, "{table}");
        }
    }
}
