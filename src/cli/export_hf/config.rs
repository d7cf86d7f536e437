//! `config.json` and `preprocessor_config.json`.

use super::Exported;
use checkpoint::Dtype;
use data::{Encoding, ImageEncoding, Resize, TextEncoding, Tokenizer};
use serde_json::{Map, Value, json};

/// The model's table, the names of its classes, and how inputs become samples; of a model that transformers has, its own entries, too.
pub(super) fn config(exported: &Exported) -> Value {
    let used = &exported.used;
    let mut model = used.plan.table("model");
    // Where the training started from is not part of the architecture.
    model.retain(|key, _| !key.starts_with("pretrained"));
    let mut config = Map::from_iter([
        ("model_type".to_owned(), json!("ddp-run")),
        ("architectures".to_owned(), json!([used.plan.model.name])),
        ("model".to_owned(), Value::Object(model)),
        ("input".to_owned(), json!(used.usage.facts.input)),
        ("target".to_owned(), json!(used.usage.facts.target)),
    ]);
    if let Some(classes) = used.usage.encoding.as_ref().and_then(Encoding::classes) {
        let by_id: Map<String, Value> =
            classes.iter().enumerate().map(|(id, name)| (id.to_string(), json!(name))).collect();
        let by_label: Map<String, Value> =
            classes.iter().enumerate().map(|(id, name)| (name.clone(), json!(id))).collect();
        config.insert("num_labels".to_owned(), json!(classes.len()));
        config.insert("id2label".to_owned(), Value::Object(by_id));
        config.insert("label2id".to_owned(), Value::Object(by_label));
    }
    let mut preprocessing = json!(used.usage.encoding);
    // It is a file of its own.
    if let Some(tokenizer) = preprocessing.get_mut("tokenizer").and_then(Value::as_object_mut) {
        tokenizer.remove("json");
        tokenizer.remove("chat");
    }
    config.insert("preprocessing".to_owned(), preprocessing);
    config.insert("ddp_run_version".to_owned(), json!(job::versions::here().ddp_run));
    if let Some(published) = &exported.published {
        // The number of classes follows from their names, if they have any.
        let named = config.contains_key("id2label");
        config.extend(published.clone().into_iter().filter(|(key, _)| key != "num_labels" || !named));
        let dtype = match exported.dtype {
            Some(Dtype::Bf16) => "bfloat16",
            Some(Dtype::F16) => "float16",
            Some(Dtype::F64) => "float64",
            _ => "float32",
        };
        config.insert("dtype".to_owned(), json!(dtype));
        if let Some(tokenizer) = exported.tokenizer() {
            config.insert("bos_token_id".to_owned(), Value::Null);
            config.insert("eos_token_id".to_owned(), json!(tokenizer.end()));
        }
        if let Some(Encoding::Images(images)) = &used.usage.encoding {
            let problem = if images.number.is_some() { "regression" } else { "single_label_classification" };
            config.insert("problem_type".to_owned(), json!(problem));
        }
    }
    Value::Object(config)
}

/// What `AutoTokenizer` needs beside tokenizer.json.
pub(super) fn tokenizer(text: &TextEncoding) -> Value {
    let mut config = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": text.block_size,
        "clean_up_tokenization_spaces": false,
    });
    if let Some(config) = config.as_object_mut() {
        // Those that a chat template may name.
        let named = text.tokenizer.chat().into_iter().flat_map(|chat| &chat.tokens);
        config.extend(named.map(|(key, token)| (key.clone(), json!(token))));
        config.insert("eos_token".to_owned(), json!(text.tokenizer.end_text()));
    }
    config
}

/// How `generate` ends a text.
pub(super) fn generation(tokenizer: &Tokenizer) -> Value {
    json!({ "eos_token_id": tokenizer.end(), "pad_token_id": tokenizer.end() })
}

/// As image processors of the hub's libraries have it.
pub(super) fn preprocessor(images: &ImageEncoding) -> Value {
    let ImageEncoding { channels, size, mean, std, resize, .. } = images;
    let square = json!({ "height": size, "width": size });
    let (scaled, crop) = match resize {
        Resize::Crop => (json!({ "shortest_edge": size }), true),
        Resize::Squash => (square.clone(), false),
    };
    let plain = mean.iter().all(|m| *m == 0.0) && std.iter().all(|s| *s == 1.0);
    json!({
        // The class for `AutoImageProcessor`: CLIP's takes exactly the entries below, and needs no model.
        "image_processor_type": "CLIPImageProcessor",
        "do_convert_rgb": *channels == 3,
        "do_resize": true,
        "size": scaled,
        // Bilinear, in Pillow's numbers.
        "resample": 2,
        "do_center_crop": crop,
        "crop_size": square,
        "do_rescale": true,
        "rescale_factor": 1.0 / 255.0,
        "do_normalize": !plain,
        "image_mean": mean,
        "image_std": std,
    })
}
