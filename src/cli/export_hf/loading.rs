//! A Python program that loads an exported folder and predicts as `ddp-run predict` does: the model, by transformers or as a module of
//! PyTorch whose state dict has the names and shapes of the weights, and how inputs become samples. There is one template for each family of models
//! and each kind of input; what depends on the model and its data are constants before it.

use data::{DataFacts, Encoding, ImageEncoding, Interpolation, Resize, TargetEncoding, TextEncoding};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use train::models::Rope;

/// What a program loads.
pub(super) struct Loading<'a> {
    /// The name of the model.
    pub name: &'a str,
    /// The class that transformers has for it.
    pub class: Option<&'a str>,
    /// The resolved `[model]` table.
    pub table: &'a Map<String, Value>,
    pub facts: &'a DataFacts,
    /// `None`: the program only loads the model.
    pub encoding: Option<&'a Encoding>,
    /// The shapes of the weights by name.
    pub shapes: &'a BTreeMap<&'a str, &'a [usize]>,
}

/// Modules of Python itself, and what of them programs contain.
const STANDARD: [(&str, &str); 3] =
    [("import csv", " csv."), ("import json", "json."), ("import sys", "sys.")];
/// The others. NumPy and Pillow come with torchvision.
const OTHERS: [(&str, &str); 11] = [
    ("import numpy as np", "np."),
    ("import torch", "torch."),
    ("import torchvision", "torchvision."),
    ("import transformers", "transformers."),
    ("from PIL import Image", "Image."),
    ("from safetensors.torch import load_file", "load_file("),
    ("from tokenizers import Tokenizer", "Tokenizer."),
    ("from torch import nn", "nn."),
    ("from torch.nn import functional", "functional."),
    ("from torchvision.transforms.functional import center_crop, resize", " resize("),
    ("from torchvision.transforms.functional import pil_to_tensor", "pil_to_tensor("),
];

impl Loading<'_> {
    /// The program; `None` for a model that does not ship with ddp-run.
    pub fn program(&self) -> Option<String> {
        let mut body = String::from("folder = \".\"  # where the weights and config.json are\n");
        if self.encoding.is_some() {
            body += "config = json.load(open(f\"{folder}/config.json\", encoding=\"utf-8\"))\n";
        }
        if let Some(class) = self.class {
            body += &of_transformers(class);
        } else {
            body += &self.model()?;
            body += "model.load_state_dict(load_file(f\"{folder}/model.safetensors\"))\nmodel.eval()\n";
        }
        match self.encoding {
            Some(Encoding::Images(images)) => body += &of_images(images),
            Some(Encoding::Table(table)) => {
                body += "\n";
                body += include_str!("python/table.py");
                body += match table.target {
                    TargetEncoding::Class { .. } => include_str!("python/table_classes.py"),
                    TargetEncoding::Number { .. } => include_str!("python/table_numbers.py"),
                };
            }
            Some(Encoding::Text(TextEncoding { tokenizer, .. })) => {
                body += "\n";
                body += match (tokenizer.characters(), tokenizer.json()) {
                    (Some(_), _) => include_str!("python/text.py"),
                    (None, Some(_)) => concat!(
                        include_str!("python/text_tokenizer.py"),
                        include_str!("python/text_until_end.py")
                    ),
                    (None, None) => concat!(
                        include_str!("python/text_bytes.py"),
                        include_str!("python/text_until_end.py")
                    ),
                };
            }
            None => {}
        }
        let imports = |all: &[(&str, &str)]| -> String {
            let used = all.iter().filter(|(_, used)| body.contains(used));
            used.map(|(line, _)| format!("{line}\n")).collect()
        };
        let imports = [imports(&STANDARD), imports(&OTHERS)].join("\n");
        Some(format!("{}\n{body}", imports.trim_start()))
    }

    /// The definition of `model`.
    fn model(&self) -> Option<String> {
        match self.name {
            "linear" => self.linear(),
            "mlp" => self.mlp(),
            "cnn" => self.cnn(),
            "resnet18" | "resnet34" | "resnet50" => self.resnet(),
            "llama" => self.llama(),
            _ => None,
        }
    }

    /// The size of a weight along a dimension.
    fn size(&self, weight: &str, dimension: usize) -> Option<usize> {
        self.shapes.get(weight)?.get(dimension).copied()
    }

    fn key(&self, name: &str) -> Option<&Value> {
        self.table.get(name)
    }

    /// Channels, height and width of images.
    fn image(&self) -> Option<[usize; 3]> {
        self.facts.input.as_ref()?.shape.as_slice().try_into().ok()
    }

    /// A model of one class of `nn`, `of(arguments)`; one that flattens its inputs where they have more than one dimension.
    fn flat(&self, of: &str, arguments: &str) -> Option<String> {
        if self.facts.input.as_ref()?.shape.len() == 1 {
            return Some(format!("\nmodel = nn.{of}({arguments})\n"));
        }
        let forward = "    def forward(self, x):\n        return super().forward(x.flatten(1))\n";
        Some(format!("\n\nclass Flat(nn.{of}):\n{forward}\n\nmodel = Flat({arguments})\n"))
    }

    fn linear(&self) -> Option<String> {
        let (outputs, inputs) = (self.size("weight", 0)?, self.size("weight", 1)?);
        self.flat("Linear", &format!("{inputs}, {outputs}"))
    }

    fn mlp(&self) -> Option<String> {
        let layers = (0..).step_by(2).map_while(|i| {
            let weight = format!("{i}.weight");
            Some(format!("    nn.Linear({}, {}),\n", self.size(&weight, 1)?, self.size(&weight, 0)?))
        });
        let layers: Vec<String> = layers.collect();
        (!layers.is_empty()).then_some(())?;
        self.flat("Sequential", &format!("\n{}", layers.join("    nn.ReLU(),\n")))
    }

    fn cnn(&self) -> Option<String> {
        let constants = [
            ("IMAGE", json!(self.image()?)),
            ("CHANNELS", self.key("channels")?.clone()),
            ("HIDDEN", self.key("hidden")?.clone()),
            ("DROPOUT", self.key("dropout")?.clone()),
            ("OUTPUTS", json!(self.size("classifier.4.weight", 0)?)),
        ];
        Some(constants_of(&constants) + include_str!("python/cnn.py"))
    }

    fn resnet(&self) -> Option<String> {
        let (channels, side) = (self.size("conv1.weight", 1)?, self.size("conv1.weight", 2)?);
        let mut out = format!(
            "\nmodel = torchvision.models.{}(num_classes={})\n",
            self.name,
            self.size("fc.weight", 0)?
        );
        if side == 3 {
            out += &format!("model.conv1 = nn.Conv2d({channels}, 64, 3, padding=1, bias=False)\n");
            out += "model.maxpool = nn.Identity()\n";
        } else if channels != 3 {
            out += &format!("model.conv1 = nn.Conv2d({channels}, 64, 7, stride=2, padding=3, bias=False)\n");
        }
        Some(out)
    }

    /// One that transformers has no class for.
    fn llama(&self) -> Option<String> {
        let layer = |name: &str| format!("model.layers.0.{name}");
        // 1 or 0: those of JSON are not Python's.
        let has = |name: String| json!(u8::from(self.shapes.contains_key(name.as_str())));
        let number = |key: &str| self.key(key)?.as_u64().map(|number| number as usize);
        let head_dim = number("head_dim")?;
        let rope = Rope {
            parameters: serde_json::from_value(self.key("rope_parameters")?.clone()).ok()?,
            head_dim,
            max_position_embeddings: number("max_position_embeddings")
                .or_else(|| self.facts.input.as_ref()?.shape.first().copied())?,
        };
        // Of the longest sequence that the model is made for.
        let (frequencies, scale) = rope.frequencies(rope.max_position_embeddings);
        let constants = [
            ("VOCABULARY", json!(self.size("model.embed_tokens.weight", 0)?)),
            ("WIDTH", json!(self.size("model.embed_tokens.weight", 1)?)),
            ("INNER", json!(self.size(&layer("mlp.up_proj.weight"), 0)?)),
            ("LAYERS", json!(number("num_hidden_layers")?)),
            ("HEADS", json!(number("num_attention_heads")?)),
            ("KV_HEADS", json!(number("num_key_value_heads")?)),
            ("HEAD", json!(head_dim)),
            ("EPS", self.key("rms_norm_eps")?.clone()),
            ("WINDOW", json!(number("sliding_window").unwrap_or(0))),
            ("WINDOW_FROM", json!(number("max_window_layers")?)),
            ("QK_NORM", has(layer("self_attn.q_norm.weight"))),
            ("QKV_BIAS", has(layer("self_attn.q_proj.bias"))),
            ("OUTPUT_BIAS", has(layer("self_attn.o_proj.bias"))),
            ("MLP_BIAS", has(layer("mlp.up_proj.bias"))),
            ("TIED", json!(u8::from(!self.shapes.contains_key("lm_head.weight")))),
            ("DROPOUT", self.key("attention_dropout")?.clone()),
            ("FREQUENCIES", json!(frequencies)),
            ("SCALE", json!(scale)),
        ];
        Some(constants_of(&constants) + include_str!("python/llama.py"))
    }
}

/// A model that transformers builds.
fn of_transformers(class: &str) -> String {
    let auto = if class.ends_with("ImageClassification") { "ImageClassification" } else { "CausalLM" };
    format!(
        "loaded = transformers.AutoModelFor{auto}.from_pretrained(folder).float().eval()\n\n\n\
         def model(x):\n    return loaded(x).logits\n\n"
    )
}

/// Assignments, one a line. Numbers and arrays of JSON are Python's.
fn constants_of(constants: &[(&str, Value)]) -> String {
    let line = |(name, value): &(&str, Value)| format!("{name} = {value}\n").replace(',', ", ");
    let lines: String = constants.iter().map(line).collect();
    format!("\n{lines}\n\n")
}

fn of_images(images: &ImageEncoding) -> String {
    let ImageEncoding { channels, size, mean, std, resize, interpolation, .. } = images;
    let mut constants = vec![("SIZE", json!(size)), ("MEAN", json!(mean)), ("STD", json!(std))];
    let answer = match images.number {
        None => include_str!("python/image_classes.py"),
        Some(target) => {
            constants.extend([("TARGET_MEAN", json!(target.mean)), ("TARGET_STD", json!(target.std))]);
            include_str!("python/image_numbers.py")
        }
    };
    let scale = match (interpolation, resize) {
        (Interpolation::Tensor, Resize::Crop) => TENSOR_CROP,
        (Interpolation::Tensor, Resize::Squash) => TENSOR_SQUASH,
        (Interpolation::Pil, Resize::Crop) => PIL_CROP,
        (Interpolation::Pil, Resize::Squash) => PIL_SQUASH,
    };
    let colours = if *channels == 1 { TO_GREY } else { TO_COLOURS };
    let template = include_str!("python/images.py");
    let program = template.replace("    # SCALE\n", scale).replace("    # COLOURS\n", colours);
    let program = program.replace("CHANNELS, SIZE, SIZE", &format!("{channels}, {size}, {size}"));
    format!("{}{program}\n\n{answer}", constants_of(&constants))
}

const TENSOR_CROP: &str = "    x = pil_to_tensor(image).float()[None]
    scale = SIZE / min(image.size)
    height, width = int(image.height * scale + 0.5), int(image.width * scale + 0.5)
    x = functional.interpolate(x, (height, width), mode=\"bilinear\", antialias=True)
    top, left = (height - SIZE) // 2, (width - SIZE) // 2
    x = (x[:, :, top : top + SIZE, left : left + SIZE] + 0.5).floor()
";
const TENSOR_SQUASH: &str = "    x = pil_to_tensor(image).float()[None]
    x = functional.interpolate(x, (SIZE, SIZE), mode=\"bilinear\", antialias=True)
    x = (x + 0.5).floor()
";
const PIL_CROP: &str = "    image = resize(image, SIZE)
    x = pil_to_tensor(center_crop(image, SIZE)).float()[None]
";
const PIL_SQUASH: &str = "    image = resize(image, [SIZE, SIZE])
    x = pil_to_tensor(image).float()[None]
";
/// The sums are whole numbers below 2^24, which f32 has.
const TO_GREY: &str = "    if x.shape[1] == 3:  # brightness by ITU-R 601, in whole numbers
        x = ((x * torch.tensor([19595.0, 38470.0, 7471.0]).view(3, 1, 1)).sum(1, True) + 32768) // 65536
";
const TO_COLOURS: &str = "    x = x.expand(1, 3, SIZE, SIZE)
";

#[cfg(test)]
#[path = "loading_tests.rs"]
mod tests;
