//! What the models read of transformers' config.json, and the one that they write.

use super::{ModelKind, standard_kinds};
use data::{DataFacts, FieldFacts, FieldKind};
use serde_json::{Map, Value as Json, json};
use spec::JobTree;
use std::sync::Arc;

fn kind(name: &str) -> Arc<dyn ModelKind> {
    let (_, kind) = standard_kinds().into_iter().find(|(own, _)| *own == name).unwrap();
    kind
}

fn keys(name: &str, config: &Json) -> Result<Map<String, Json>, String> {
    kind(name).keys_of_config(config.as_object().unwrap())
}

/// The config.json of a model with this table beside one that it inherits, or what is wrong.
fn config_of(name: &str, table: &str, inherited: &Json) -> Result<Json, String> {
    let field = |shape: &[usize], kind| Some(FieldFacts { shape: shape.to_vec(), kind });
    let (input, target) = match name {
        "gpt" => (field(&[16], FieldKind::Index(60)), field(&[16], FieldKind::Index(60))),
        _ => (field(&[1, 32, 64], FieldKind::Float), field(&[], FieldKind::Index(5))),
    };
    let facts = DataFacts { input, target, ..DataFacts::default() };
    let tree = JobTree::parse("job.toml", &format!("[model]\n{table}"), &[]);
    let read = tree.read(|root| {
        let mut fields = root.section("model");
        if let Some(inherited) = inherited.as_object() {
            fields.inherit(kind(name).keys_of_config(inherited).unwrap(), "config.json".to_owned());
        }
        kind(name).configure(&mut fields, &facts).config_json(&facts)
    });
    read.map(|(config, _)| config.map_or(Json::Null, Json::Object)).map_err(|e| e.to_string())
}

#[test]
fn models_have_the_sizes_of_the_config_that_they_write() {
    let cases = [
        ("vit", "preset = \"cifar\"\nnum_layers = 2\nmlp_dim = 40\nlayer_norm_eps = 1e-5"),
        ("gpt", "n_layer = 1\nn_head = 2\nn_embd = 12\nblock_size = 20\nvocab_size = 70"),
        ("resnet34", ""),
    ];
    for (name, table) in cases {
        let written = config_of(name, table, &Json::Null).unwrap();
        assert!(written.is_object(), "{name}");
        assert_eq!(config_of(name, "", &written).unwrap(), written, "{name}");
    }
    let vit = config_of("vit", "preset = \"cifar\"", &Json::Null).unwrap();
    assert_eq!((&vit["image_size"], &vit["layer_norm_eps"]), (&json!([32, 64]), &json!(1e-6)));
    // transformers has no such stem.
    assert_eq!(config_of("resnet18", "stem = \"cifar\"", &Json::Null).unwrap(), Json::Null);
}

#[test]
fn missing_keys_have_the_values_of_transformers() {
    let read = keys("vit", &json!({ "model_type": "vit", "patch_size": 14, "hidden_size": null })).unwrap();
    let expected = json!({
        "patch_size": 14, "num_layers": 12, "num_heads": 12, "hidden_dim": 768, "mlp_dim": 3072, "layer_norm_eps": 1e-12
    });
    assert_eq!(Json::Object(read), expected);
    // A ResNet-50.
    let read = keys("resnet50", &json!({ "model_type": "resnet" })).unwrap();
    assert_eq!(Json::Object(read), json!({ "stem": "imagenet" }));
    // Of timm, whose tensors have torchvision's names; and the published GPT-2, of which `gpt` takes what fits.
    for (name, config) in [
        ("vit", json!({ "architecture": "vit_base_patch16_224" })),
        ("resnet50", json!({ "architecture": "resnet50" })),
        ("gpt", json!({ "model_type": "gpt2", "activation_function": "gelu_new", "n_embd": 768 })),
    ] {
        assert_eq!(keys(name, &config), Ok(Map::new()), "{name}");
    }
}

#[test]
fn what_the_models_do_not_compute_is_refused() {
    let gpt = config_of("gpt", "", &Json::Null).unwrap();
    let changed = |config: &Json, key: &str, value: Json| {
        let mut config = config.clone();
        config[key] = value;
        config
    };
    for (name, config, why) in [
        ("vit", json!({ "model_type": "deit" }), "expected `model_type` \"vit\", found \"deit\""),
        ("vit", json!({ "model_type": "vit", "qkv_bias": false }), "expected `qkv_bias` true, found false"),
        ("vit", json!({ "model_type": "vit", "hidden_act": "relu" }), "found \"relu\""),
        ("resnet50", json!({ "model_type": "vit" }), "expected `model_type` \"resnet\""),
        ("resnet18", json!({ "model_type": "resnet" }), "expected `"),
        (
            "resnet50",
            json!({ "model_type": "resnet", "downsample_in_bottleneck": true }),
            "downsample_in_bottleneck",
        ),
        ("gpt", changed(&gpt, "layer_norm_epsilon", json!(0.5)), "expected `layer_norm_epsilon`"),
        (
            "gpt",
            changed(&gpt, "scale_attn_by_inverse_layer_idx", json!(true)),
            "scale_attn_by_inverse_layer_idx",
        ),
    ] {
        let found = keys(name, &config).unwrap_err();
        assert!(found.contains(why), "{name} {config}: {found}");
    }
}

#[test]
fn keys_beside_a_folder_must_not_contradict_it() {
    let vit = config_of("vit", "preset = \"cifar\"", &Json::Null).unwrap();
    let gpt = config_of("gpt", "n_layer = 1", &Json::Null).unwrap();
    let resnet = config_of("resnet18", "", &Json::Null).unwrap();
    for (name, table, config, why) in [
        ("vit", "preset = \"ti_16\"", &vit, "contradicts the sizes in config.json"),
        ("vit", "num_layers = 3", &vit, "contradicts `num_layers = 6` in config.json"),
        ("gpt", "preset = \"small\"", &gpt, "contradicts the sizes in config.json"),
        ("resnet18", "stem = \"cifar\"", &resnet, "contradicts `stem = \"imagenet\"` in config.json"),
    ] {
        let found = config_of(name, table, config).unwrap_err();
        assert!(found.contains(why), "{name} {table}: {found}");
    }
    assert_eq!(config_of("vit", "preset = \"cifar\"", &vit).unwrap(), vit);
}
