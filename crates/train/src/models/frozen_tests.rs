//! What is frozen changes nothing for the other parameters, wherever it is: the bits of loss and gradients stay.

use super::testing::gradients;
use super::{
    Cnn, CnnConfig, Depth, Gpt, GptConfig, Input, Model, Net, NetModel, ResNet, Stem, Vit, VitConfig,
};
use burn::tensor::{Device, Tensor};
use data::{FieldData, HostField};
use ddp::device::Compute;
use kernels::testing::noise;

/// Compares the model with one whose parameters are frozen as each of `frozen` says of their names.
fn unchanged<N: Net>(
    build: impl Fn(&Device) -> N,
    input: &HostField,
    batch: usize,
    frozen: &[fn(&str) -> bool],
) {
    let model = || NetModel::new(&Compute::host(), 1, |device| Ok(build(device))).unwrap();
    let step = |model: &NetModel<N>| {
        let loss = |outputs: Tensor<2>| (outputs.clone() * outputs).sum();
        let found = gradients(model, Input::from_host(input, batch, model.device()), loss);
        found.iter().map(|values| values.iter().map(|x| x.to_bits()).collect()).collect::<Vec<Vec<u32>>>()
    };
    let whole = model();
    let names: Vec<String> =
        whole.entries().iter().filter(|e| e.trainable()).map(|e| e.name.clone()).collect();
    let expected = step(&whole);
    for (case, freezes) in frozen.iter().enumerate() {
        let mut part = model();
        let all: Vec<bool> = part.entries().iter().map(|e| freezes(&e.name)).collect();
        part.freeze(&|number| all[number]);
        let kept = names.iter().zip(&expected[1..]).filter(|(name, _)| !freezes(name));
        let (kept, wanted): (Vec<&String>, Vec<&Vec<u32>>) = kept.unzip();
        assert!(!kept.is_empty() && kept.len() < names.len(), "case {case} is none");
        let found = step(&part);
        assert_eq!(found[0], expected[0], "case {case}: the loss");
        assert_eq!(found.len(), 1 + kept.len(), "case {case}");
        for ((name, found), wanted) in kept.iter().zip(&found[1..]).zip(wanted) {
            assert!(found == wanted, "case {case}: the gradient of {name}");
        }
    }
}

fn images(batch: usize, shape: [usize; 3]) -> HostField {
    let count = batch * shape.iter().product::<usize>();
    HostField { shape: shape.to_vec(), data: FieldData::Float(noise(count, 3)) }
}

#[test]
fn convolutions_beside_frozen_ones_have_the_same_gradients() {
    let resnet = |device: &Device| ResNet::new(Depth::RESNET18, Stem::Cifar, 3, 5, device);
    unchanged(
        resnet,
        &images(2, [3, 8, 8]),
        2,
        &[
            |name| !name.starts_with("fc."),
            |name| name.starts_with("layer2."),
            |name| name.contains("bn"),
            |name| name.ends_with("conv2.weight"),
        ],
    );
    let config =
        || CnnConfig { input: [3, 8, 8], channels: vec![4, 6], hidden: 10, outputs: 5, dropout: 0.0 };
    unchanged(
        |device| Cnn::new(&config(), device),
        &images(3, [3, 8, 8]),
        3,
        &[
            |name| name.starts_with("features."),
            |name| name.ends_with("bias"),
            |name| name.starts_with("classifier."),
        ],
    );
}

#[test]
fn blocks_beside_frozen_ones_have_the_same_gradients() {
    let config =
        GptConfig { vocab_size: 11, block_size: 40, n_layer: 2, n_head: 3, n_embd: 36, dropout: 0.0 };
    let tokens = (0..80).map(|i| (i * i % 11) as i64).collect();
    let tokens = HostField { shape: vec![40], data: FieldData::Index(tokens) };
    let frozen: [fn(&str) -> bool; 5] = [
        |name| name.contains("h.0.") || name.contains("wte") || name.contains("wpe"),
        |name| name.contains("h.1."),
        |name| name.contains("ln_"),
        |name| name.contains("attn"),
        |name| name.ends_with("bias"),
    ];
    unchanged(|device| Gpt::new(config, device), &tokens, 2, &frozen);
    let config = VitConfig {
        image: [3, 8, 8],
        patch_size: 2,
        num_layers: 2,
        num_heads: 2,
        hidden_dim: 32,
        mlp_dim: 64,
        num_classes: 5,
        dropout: 0.0,
        attention_dropout: 0.0,
        eps: 1e-6,
    };
    unchanged(
        |device| Vit::new(config, device),
        &images(2, [3, 8, 8]),
        2,
        &[
            |name| !name.starts_with("heads."),
            |name| name.contains("encoder_layer_1"),
            |name| name.contains("self_attention"),
            |name| name == "class_token",
        ],
    );
}
