use super::draft4::value;
use super::*;
use collectives::{CommError, ProcessGroup};
use data::{Sample, Transform};
use ddp::CommHook;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value as Json, json};

/// Adds noise.
#[derive(Deserialize, JsonSchema)]
struct Noise {
    /// Its width.
    #[schemars(range(min = 0.0))]
    width: f64,
}

impl Transform for Noise {
    fn apply(&self, _: Sample<'_>) -> base::error::Result<()> {
        assert!(self.width >= 0.0);
        Ok(())
    }
}

/// The variant of a table that has this name.
fn variant<'a>(table: &'a Json, name: &str) -> &'a Json {
    let variants = table["oneOf"].as_array().expect("variants");
    variants.iter().find(|variant| variant["title"] == name).unwrap_or_else(|| panic!("{name}: {table}"))
}

#[test]
fn every_name_of_the_registry_has_its_keys() {
    let registry = Registry::standard();
    let reference = Reference::new(&registry);
    for (table, names) in registry.names().into_iter().filter(|(_, names)| !names.is_empty()) {
        let found = reference.table(table).expect("a table");
        assert_eq!(found.components.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), names, "{table}");
    }
    let optimizers = reference.table("optimizer").unwrap();
    for component in &optimizers.components {
        assert!(
            component.keys().iter().any(|key| key.name == "weight_decay" || key.name == "lr"),
            "{}",
            component.name
        );
    }
    let paths: Vec<&str> = reference.tables.iter().map(|table| table.path.as_str()).collect();
    assert_eq!(paths[..3], ["", "model", "dataset"], "the order of plans");
    assert!(!paths.contains(&"loss"), "a program without losses of its own has no such table");
    for table in reference.tables.iter().filter(|table| table.components.len() > 1) {
        let abouts: Vec<&str> = table.components.iter().map(|component| component.about.as_str()).collect();
        assert!(abouts.iter().all(|about| !about.is_empty()), "{}: {abouts:?}", table.path);
        assert!(abouts.iter().any(|about| *about != abouts[0]), "{}: {abouts:?}", table.path);
    }
    let resnet = reference.table("model").unwrap().component("resnet18").unwrap();
    assert!(resnet.about.contains("torchvision"), "{}", resnet.about);
}

#[test]
fn components_of_ones_own_are_in_the_schema() {
    let schema = json_schema(&Reference::new(&Registry::standard().transform::<Noise>("noise")));
    assert_eq!(schema["properties"]["transform"]["anyOf"][1]["items"]["$ref"], "#/definitions/transform");
    let table = &schema["definitions"]["transform"];
    let noise = variant(table, "noise");
    assert_eq!(noise["description"], "Adds noise.");
    assert_eq!(noise["properties"]["width"]["minimum"], 0.0);
    let required = &schema["anyOf"][1]["properties"]["transform"]["anyOf"][0];
    assert_eq!(required["oneOf"][0]["required"], json!(["name", "width"]));
}

/// Rounds gradients.
#[derive(Deserialize, JsonSchema)]
struct Rounding {
    /// Bits that are kept.
    #[schemars(range(min = 1, max = 8))]
    #[allow(dead_code, reason = "only declared")]
    bits: u8,
}

/// Averages nothing.
struct Kept;

impl CommHook for Kept {
    fn average(&mut self, _: usize, _: &mut [f32], _: &dyn ProcessGroup) -> Result<(), CommError> {
        Ok(())
    }
}

#[test]
fn keys_of_a_hook_are_those_of_its_table() {
    let reference = |registry: Registry| Reference::new(&registry);
    let standard = reference(Registry::standard());
    let names: Vec<&str> = standard.hooks.iter().map(|hook| hook.name.as_str()).collect();
    assert_eq!(names[0], "none");
    assert!(names.contains(&"bf16") && standard.table(HOOK).is_none(), "{names:?}");
    assert!(json_schema(&standard)["properties"]["distributed"]["properties"]["hook"].is_object());

    let own = reference(Registry::standard().comm_hook_with("rounding", |_: &Rounding| Kept));
    let hook = own.hooks.iter().find(|hook| hook.name == "rounding").expect("it is listed");
    assert_eq!(hook.about, "Rounds gradients.");
    assert_eq!(own.table(HOOK).expect("a table").names(), ["bits"]);
    assert_eq!(own.keys_at(HOOK, &|_| None).len(), 1, "editors complete it");
    let table = &json_schema(&own)["properties"]["distributed"]["properties"]["hook"];
    assert_eq!(table["anyOf"][0]["title"], "rounding");
    assert_eq!(table["anyOf"][0]["properties"]["bits"]["maximum"], 8);
    assert_eq!(table["anyOf"][0]["additionalProperties"], false);
}

#[test]
fn keys_that_are_required_have_no_default_and_groups_have_the_optimizers_keys() {
    let schema = json_schema(&Reference::new(&Registry::standard()));
    assert_eq!(
        schema["anyOf"][1]["required"],
        json!(["name", "batch_size", "model", "dataset", "optimizer"])
    );
    assert_eq!(schema["properties"]["batch_size"].get("default"), None);
    assert_eq!(schema["properties"]["seed"]["default"], 0);
    let adamw = variant(&schema["properties"]["optimizer"], "adamw");
    assert_eq!(adamw["properties"]["group"]["anyOf"][0]["$ref"], "#/definitions/group-of-adamw");
    let group = &schema["definitions"]["group-of-adamw"]["properties"];
    assert_eq!(group["betas"]["minItems"], 2);
    assert!(group.get("match").is_some() && group["lr"].get("default").is_none(), "{group:#}");
}

#[test]
fn schemas_are_written_in_draft_4() {
    let choice = json!({
        "anyOf": [{ "oneOf": [
            { "const": "a", "description": "The first." }, { "const": "b", "description": "The second." }
        ] }, { "type": "null" }],
        "description": "One of two.",
        "default": null,
    });
    assert_eq!(
        value(&choice),
        json!({
            "enum": ["a", "b"],
            "x-taplo": { "docs": { "enumValues": ["The first.", "The second."] } },
            "description": "One of two.",
        })
    );
    let number = json!({ "type": ["number", "null"], "format": "double", "exclusiveMinimum": 0.0, "maximum": 1.0, "default": 0.5 });
    assert_eq!(
        value(&number),
        json!({ "type": "number", "maximum": 1.0, "minimum": 0.0, "exclusiveMinimum": true, "default": 0.5 })
    );
    let own = json!({ "type": ["string", "integer"], "x-expected": "a number of steps", "description": "How often." });
    assert_eq!(
        value(&own),
        json!({ "type": ["string", "integer"], "description": "How often. Expected: a number of steps." })
    );
    let list = json!({ "type": "array", "items": { "type": "integer", "format": "uint" }, "minItems": 2, "maxItems": 2 });
    assert_eq!(
        value(&list),
        json!({ "type": "array", "minItems": 2, "maxItems": 2, "items": { "type": "integer" } })
    );
}

/// The words that a key offers.
fn words(path: &str, component: Option<&str>, key: &str) -> Vec<String> {
    let reference = Reference::new(&Registry::standard());
    let table = reference.table(path).expect("a table");
    let keys = match component {
        Some(name) => table.component(name).expect("a component").keys(),
        None => table.keys(),
    };
    let key = keys.into_iter().find(|known| known.name == key).expect("a key");
    key.choices.iter().map(|choice| crate::plan::one_line(&choice.value)).collect()
}

#[test]
fn words_of_keys_with_a_syntax_of_their_own_are_offered() {
    for (path, component, key, expected) in [
        ("", None, "device", vec!["\"auto\"", "\"cpu\"", "\"cuda\"", "\"wgpu\""]),
        ("launch", None, "nproc_per_node", vec!["\"devices\"", "\"auto\"", "\"gpu\"", "\"cpu\""]),
        ("", None, "save_every", vec!["\"never\""]),
        ("metrics", None, "top5", vec!["true", "false", "\"auto\""]),
    ] {
        assert_eq!(words(path, component, key), expected, "{path}.{key}");
    }
    for (path, key) in [("checkpoint", "best"), ("early_stop", "metric")] {
        assert!(words(path, None, key).contains(&"\"val.accuracy\"".to_owned()), "{path}.{key}");
    }
    assert!(words("dataset", Some("mnist"), "augment").contains(&"\"cutout\"".to_owned()));
}

#[test]
fn the_schema_has_names_of_augmentations_and_least_numbers() {
    let schema = json_schema(&Reference::new(&Registry::standard()));
    let augment = &variant(&schema["properties"]["dataset"], "mnist")["properties"]["augment"];
    assert!(
        augment["items"]["enum"].as_array().is_some_and(|names| names.contains(&json!("crop"))),
        "{augment}"
    );
    let launch = &schema["properties"]["launch"]["properties"];
    for key in ["nproc_per_node", "nnodes"] {
        assert_eq!(launch[key]["minimum"], 1, "{key}: {}", launch[key]);
    }
    let timeout = &schema["properties"]["distributed"]["properties"]["timeout"];
    assert_eq!((&timeout["minimum"], &timeout["exclusiveMinimum"]), (&json!(0), &json!(true)), "{timeout}");
}

#[test]
fn a_table_of_rows_has_its_own_default_for_the_validation_split() {
    let reference = Reference::new(&Registry::standard());
    let table = reference.table("dataset").expect("a table");
    for (name, expected) in [("csv", 0.1), ("california-housing", 0.1), ("random", 0.0), ("mnist", 0.0)] {
        let keys = table.component(name).expect("a data set").keys();
        let split: Vec<&Key> = keys.iter().filter(|key| key.name == "val_split").collect();
        assert_eq!(split.len(), 1, "{name}");
        assert_eq!(split[0].default, Some(toml::Value::Float(expected)), "{name}");
        assert_eq!(keys.iter().filter(|key| key.name == "max_train").count(), 1, "{name}");
    }
}
