//! The vision transformer against torchvision's. tests/reference/vit.py computes the expected values.

use super::*;
use crate::models::testing::{gradients, read};
use crate::models::{ALL, Model, NetModel};
use ddp::device::{Compute, drawn};
use kernels::testing::noise;

const LOGITS: [f32; 6] = [-0.0816953, -0.0904449, 0.1868411, -0.0552759, -0.0426237, 0.1887631];

/// Each tensor's name and shape in torchvision's state dict, and the product of its gradient with [`noise`].
const TENSORS: [(&str, &[usize], f32); 32] = [
    ("class_token", &[1, 1, 8], -0.0334194),
    ("conv_proj.weight", &[8, 3, 4, 4], -0.0246712),
    ("conv_proj.bias", &[8], -0.0063695),
    ("encoder.pos_embedding", &[1, 5, 8], 0.0198716),
    ("encoder.layers.encoder_layer_0.ln_1.weight", &[8], 0.0091704),
    ("encoder.layers.encoder_layer_0.ln_1.bias", &[8], -0.027022),
    ("encoder.layers.encoder_layer_0.self_attention.in_proj_weight", &[24, 8], 0.1118139),
    ("encoder.layers.encoder_layer_0.self_attention.in_proj_bias", &[24], -0.032183),
    ("encoder.layers.encoder_layer_0.self_attention.out_proj.weight", &[8, 8], -0.0149673),
    ("encoder.layers.encoder_layer_0.self_attention.out_proj.bias", &[8], -0.0417864),
    ("encoder.layers.encoder_layer_0.ln_2.weight", &[8], 0.0018166),
    ("encoder.layers.encoder_layer_0.ln_2.bias", &[8], 0.0057894),
    ("encoder.layers.encoder_layer_0.mlp.0.weight", &[12, 8], -0.0317048),
    ("encoder.layers.encoder_layer_0.mlp.0.bias", &[12], -0.0301967),
    ("encoder.layers.encoder_layer_0.mlp.3.weight", &[8, 12], 0.0645637),
    ("encoder.layers.encoder_layer_0.mlp.3.bias", &[8], -0.0272226),
    ("encoder.layers.encoder_layer_1.ln_1.weight", &[8], -0.0295442),
    ("encoder.layers.encoder_layer_1.ln_1.bias", &[8], -0.0245142),
    ("encoder.layers.encoder_layer_1.self_attention.in_proj_weight", &[24, 8], 0.0081523),
    ("encoder.layers.encoder_layer_1.self_attention.in_proj_bias", &[24], -0.0434071),
    ("encoder.layers.encoder_layer_1.self_attention.out_proj.weight", &[8, 8], -0.0423255),
    ("encoder.layers.encoder_layer_1.self_attention.out_proj.bias", &[8], -0.0742436),
    ("encoder.layers.encoder_layer_1.ln_2.weight", &[8], 0.0469083),
    ("encoder.layers.encoder_layer_1.ln_2.bias", &[8], 0.0179279),
    ("encoder.layers.encoder_layer_1.mlp.0.weight", &[12, 8], -0.0415618),
    ("encoder.layers.encoder_layer_1.mlp.0.bias", &[12], -0.037045),
    ("encoder.layers.encoder_layer_1.mlp.3.weight", &[8, 12], 0.0075813),
    ("encoder.layers.encoder_layer_1.mlp.3.bias", &[8], 0.0432257),
    ("encoder.ln.weight", &[8], 0.1316958),
    ("encoder.ln.bias", &[8], 0.4830769),
    ("heads.head.weight", &[3, 8], 0.1851524),
    ("heads.head.bias", &[3], 0.2582763),
];

fn config() -> VitConfig {
    VitConfig {
        image: [3, 8, 8],
        patch_size: 4,
        num_layers: 2,
        num_heads: 2,
        hidden_dim: 8,
        mlp_dim: 12,
        num_classes: 3,
        dropout: 0.0,
        attention_dropout: 0.0,
        eps: EPS,
    }
}

fn images(batch: usize, device: &Device) -> Input {
    Input::from_tensor(
        Tensor::<1>::from_floats(&noise(batch * 192, 100)[..], device).reshape([batch, 3, 8, 8]),
    )
}

fn close(what: &str, found: f32, expected: f32) {
    assert!((found - expected).abs() < 1e-6, "{what}: {found}, torchvision: {expected}");
}

#[test]
fn outputs_and_gradients_are_torchvisions() {
    let mut model = NetModel::new(&Compute::host(), 1, |device| Ok(Vit::new(config(), device))).unwrap();
    let entries: Vec<_> = model.entries().iter().map(|e| (e.name.as_str(), &e.shape[..])).collect();
    assert_eq!(entries, TENSORS.map(|(name, shape, _)| (name, shape)));
    model
        .edit(ALL, &mut |number, values| {
            let drawn = noise(values.len(), number as u64 + 1);
            values.iter_mut().zip(drawn).for_each(|(value, x)| *value = 0.5 * x);
        })
        .unwrap();
    let evaluator = model.evaluator();
    let logits = read(evaluator.forward(images(2, &evaluator.device())));
    for (i, (&found, expected)) in logits.iter().zip(LOGITS).enumerate() {
        close(&format!("logit {i}"), found, expected);
    }
    let weights = Tensor::<1>::from_floats(&noise(6, 101)[..], model.device()).reshape([2, 3]);
    let results = gradients(&model, images(2, model.device()), |logits| (logits * weights).sum());
    for (number, ((name, _, expected), found)) in TENSORS.into_iter().zip(&results[1..]).enumerate() {
        let drawn = noise(found.len(), 200 + number as u64);
        close(name, found.iter().zip(drawn).map(|(g, x)| g * x).sum(), expected);
    }
}

/// As torchvision draws them: the first predictions are all equal, and no block starts with a bias.
#[test]
fn initial_values_are_torchvisions() {
    let config = VitConfig { hidden_dim: 64, mlp_dim: 256, ..config() };
    let model = NetModel::new(&Compute::host(), 1, |device| Ok(Vit::new(config, device))).unwrap();
    let expected = [
        ("class_token", 0.0),
        ("conv_proj.weight", (1.0f64 / 48.0).sqrt()),
        ("conv_proj.bias", 0.0),
        ("encoder.pos_embedding", 0.02),
        ("in_proj_weight", (2.0f64 / 256.0).sqrt()),
        ("in_proj_bias", 0.0),
        ("out_proj.weight", (1.0f64 / 3.0 / 64.0).sqrt()),
        ("out_proj.bias", 0.0),
        ("mlp.0.weight", (2.0f64 / 320.0).sqrt()),
        ("mlp.0.bias", 1e-6),
        ("mlp.3.weight", (2.0f64 / 320.0).sqrt()),
        ("mlp.3.bias", 1e-6),
        ("heads.head.weight", 0.0),
        ("heads.head.bias", 0.0),
    ];
    let mut deviations = Vec::new();
    model
        .read(ALL, &mut |_, values| {
            let squares: f64 = values.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
            deviations.push((squares / values.len() as f64).sqrt());
        })
        .unwrap();
    for (entry, deviation) in model.entries().iter().zip(deviations) {
        let Some(&(_, expected)) = expected.iter().find(|(name, _)| entry.name.ends_with(name)) else {
            assert!(entry.name.contains(".ln"), "{} is expected of nothing", entry.name);
            continue;
        };
        // Of at least 64 values, so that the deviation's own is below 9 %.
        assert!(
            (deviation - expected).abs() <= 0.3 * expected,
            "{}: {deviation}, not {expected}",
            entry.name
        );
    }
}

#[test]
fn dropout_is_of_training_only() {
    let config = VitConfig { dropout: 0.3, attention_dropout: 0.2, ..config() };
    let build =
        |config| NetModel::new(&Compute::host(), 1, move |device| Ok(Vit::new(config, device))).unwrap();
    let (mut dropping, mut plain) = (build(config), build(self::config()));
    for model in [&mut dropping, &mut plain] {
        let draw =
            &mut |number, values: &mut [f32]| values.copy_from_slice(&noise(values.len(), number as u64));
        model.edit(ALL, draw).unwrap();
    }
    let evaluate = |model: &NetModel<Vit>| {
        let evaluator = model.evaluator();
        read(evaluator.forward(images(2, &evaluator.device())))
    };
    assert_eq!(evaluate(&dropping), evaluate(&plain));
    let train = |model: &NetModel<Vit>| {
        drawn(model.device(), 1, || gradients(model, images(2, model.device()), |logits| logits.sum()))
    };
    assert_ne!(train(&dropping)[0], train(&plain)[0]);
}
