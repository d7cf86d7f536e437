//! The program in the model card of `ddp-run export --hf`, run by a Python that has PyTorch: its outputs are those of `ddp-run predict`.

use crate::common::*;
use serde_json::Value;
use std::path::{Path, PathBuf};

const MODELS_OF_IMAGES: [(&str, &str); 7] = [
    ("name = \"linear\"", ""),
    ("name = \"mlp\"\nhidden = [8]", "channels = 1\nresize = \"squash\"\n"),
    ("name = \"cnn\"\nchannels = [4, 8]\nhidden = 8\ndropout = 0.2", "interpolation = \"pil\"\n"),
    (
        "name = \"cnn\"\nchannels = [4]\nhidden = 8",
        "channels = 1\ninterpolation = \"pil\"\nresize = \"squash\"\n",
    ),
    ("name = \"resnet18\"\nstem = \"cifar\"", "interpolation = \"pil\"\n"),
    ("name = \"resnet18\"", "channels = 1\ninterpolation = \"pil\"\n"),
    ("name = \"vit\"\npreset = \"cifar\"\nnum_layers = 2\nhidden_dim = 48", "interpolation = \"pil\"\n"),
];

/// Trains, exports, and returns the folders of the run and of the export.
#[track_caller]
fn exported(dir: &Path, model: &str, dataset: &str) -> (PathBuf, PathBuf) {
    exported_with(dir, model, dataset, "1e-3")
}

#[track_caller]
fn exported_with(dir: &Path, model: &str, dataset: &str, lr: &str) -> (PathBuf, PathBuf) {
    let spec = format!(
        "name = \"card\"\nseed = 1\nepochs = 1\nbatch_size = 8\ndevice = \"cpu\"\n[model]\n{model}\n[dataset]\n{dataset}\n\
         [optimizer]\nname = \"adamw\"\nlr = {lr}\n[launch]\nnproc_per_node = 1\nthreads = 1\n"
    );
    let (run, hub) = (trained(dir, &spec), dir.join("hub"));
    assert_code(&output_of(ddp_run().arg("export").arg(&run).arg("--hf").arg(&hub)), 0);
    (run, hub)
}

/// What `expression` gives, as JSON, after the program in the card of `hub`, which has no arguments.
#[track_caller]
fn by_pytorch(python: &str, hub: &Path, expression: &str) -> Value {
    let card = std::fs::read_to_string(hub.join("README.md")).unwrap();
    let (_, program) = card.split_once("```python\n").expect("the card has a program");
    let (program, _) = program.split_once("```\n").unwrap();
    std::fs::write(hub.join("use.py"), format!("{program}\nprint(json.dumps({expression}))\n")).unwrap();
    let output = output_of(std::process::Command::new(python).arg("use.py").current_dir(hub));
    assert!(output.status.success(), "{}\n{program}", stderr(&output));
    parse_json(output.stdout)
}

#[track_caller]
fn predicted(run: &Path, words: &[&str]) -> Vec<Value> {
    stdout_of(ddp_run().arg("predict").arg(run).args(words)).lines().map(parse_json).collect()
}

/// The largest difference of two lists of lists of numbers, relative to the largest number.
#[track_caller]
fn difference(ours: &[Value], pytorch: &Value) -> f64 {
    let numbers = |row: &Value| -> Vec<f64> { serde_json::from_value(row.clone()).unwrap() };
    let ours: Vec<f64> = ours.iter().flat_map(numbers).collect();
    let pytorch: Vec<f64> = pytorch.as_array().unwrap().iter().flat_map(numbers).collect();
    assert_eq!(ours.len(), pytorch.len());
    let largest = ours.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
    ours.iter().zip(&pytorch).fold(0.0_f64, |most, (a, b)| most.max((a - b).abs())) / largest
}

/// Images of three formats of PNG and of several sizes; the pixels are noise on a gradient.
fn images(root: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for i in 0..24u32 {
        let path = root.join(format!("train/{}/{i}.png", ["dark", "light"][i as usize % 2]));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let level = 30 + 90 * (i % 2);
        let pixel = |x: u32, y: u32| {
            let noise = (x * 31 + y * 17 + i * 7).wrapping_mul(2_654_435_761) % 97;
            image::Rgba([(level + noise) as u8, (level + x) as u8, (noise + y) as u8, 90])
        };
        let whole = image::DynamicImage::from(image::RgbaImage::from_fn(30 + i % 5 * 7, 50 - i, pixel));
        match i % 3 {
            0 => whole.to_luma8().save(&path).unwrap(),
            1 => whole.to_rgb8().save(&path).unwrap(),
            _ => whole.save(&path).unwrap(),
        }
        all.push(path.to_str().unwrap().to_owned());
    }
    all
}

#[test]
fn programs_of_model_cards_predict_as_ddp_run_does() {
    let Ok(python) = std::env::var("DDP_RUN_TORCH_PYTHON") else {
        println!(
            "skipped: DDP_RUN_TORCH_PYTHON does not name a Python that has torch, torchvision and safetensors"
        );
        return;
    };
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let data = |name: &str| dir.path().join(name);
    let part = |number: usize| {
        let part = dir.path().join(number.to_string());
        std::fs::create_dir(&part).unwrap();
        part
    };

    let files = images(&data("images"));
    let words: Vec<&str> = files.iter().map(String::as_str).chain(["--logits"]).collect();
    for (number, (model, keys)) in MODELS_OF_IMAGES.iter().enumerate() {
        let dataset = format!(
            "name = \"image-folder\"\nroot = {:?}\nimage_size = 32\nval_split = 0.2\n{keys}",
            data("images")
        );
        let (run, hub) = exported(&part(number), model, &dataset);
        let ours: Vec<Value> =
            predicted(&run, &words).into_iter().map(|line| line["logits"].clone()).collect();
        let pytorch = by_pytorch(&python, &hub, &format!("[predict(path).tolist() for path in {files:?}]"));
        let found = difference(&ours, &pytorch);
        println!("{model} {keys}: {found:e}");
        // With "tensor" sums of floats are rounded to bytes: some pixels differ by 1 of 255.
        let most = if keys.contains("pil") { 1e-4 } else { 3e-2 };
        assert!(found < most, "{model} {keys}: {found}");
    }

    let row = |i: usize| {
        let length =
            if i % 11 == 5 { String::new() } else { format!("{:.1}", 35.0 + ((i * 37) % 100) as f64 / 12.5) };
        format!(
            "{},{length},{},{}\n",
            ["Adelie", "Gentoo"][i % 2],
            ["Dream", " Biscoe"][i / 3 % 2],
            3000 + i * 13 % 900
        )
    };
    let table = "species,length,island,mass\n".to_owned() + &(0..60).map(row).collect::<String>();
    std::fs::write(data("t.csv"), table).unwrap();
    let path = data("t.csv").to_str().unwrap().to_owned();
    for (number, target, key) in [(20, "species\"\ntask = \"classification", "logits"), (21, "mass", "value")]
    {
        let dataset = format!("name = \"csv\"\npath = {path:?}\ntarget = \"{target}\"\nblanks = \"mean\"");
        let (run, hub) = exported(&part(number), "name = \"mlp\"\nhidden = [8]", &dataset);
        let (words, of) = match key {
            "logits" => (vec![path.as_str(), "--logits"], "predict(row).tolist()"),
            _ => (vec![path.as_str()], "predict(row).tolist()[0]"),
        };
        let ours: Vec<Value> = predicted(&run, &words).into_iter().map(|line| line[key].clone()).collect();
        let pytorch = by_pytorch(&python, &hub, &format!("[{of} for row in rows({path:?})]"));
        let found = match key {
            "logits" => difference(&ours, &pytorch),
            _ => difference(&[ours.into()], &vec![pytorch].into()),
        };
        println!("{target}: {found:e}");
        assert!(found < 1e-6, "{target}: {found}");
    }

    std::fs::write(data("t.txt"), "the cat sat on the mat. ".repeat(60)).unwrap();
    let dataset = format!("name = \"text\"\npath = {:?}\nblock_size = 16\nmax_train = 400", data("t.txt"));
    let (run, hub) = exported(&part(30), "name = \"gpt\"\nn_layer = 2\nn_head = 2\nn_embd = 32", &dataset);
    let words = ["--prompt", "the c", "--temperature", "0", "--max-tokens", "40", "--out", "-"];
    let ours = predicted(&run, &words)[0]["text"].clone();
    let pytorch = by_pytorch(&python, &hub, "generate('the c', 40, 0)");
    assert_eq!(pytorch.as_str().unwrap(), format!("the c{}", ours.as_str().unwrap()));
}

/// The models of images that transformers writes: their logits, and their weights written again.
#[test]
fn folders_of_transformers_give_its_logits() {
    let Ok(python) = std::env::var("DDP_RUN_TORCH_PYTHON") else {
        return println!(
            "skipped: DDP_RUN_TORCH_PYTHON does not name a Python that has torch and transformers"
        );
    };
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let files = images(&path("images"));
    let cases = [
        (
            "vit",
            "ViTForImageClassification",
            "hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, image_size=32, patch_size=8",
        ),
        (
            "resnet18",
            "ResNetForImageClassification",
            "depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512], layer_type='basic'",
        ),
        ("resnet50", "ResNetForImageClassification", ""),
    ];
    for (name, class, sizes) in cases {
        let theirs = path(&format!("{name}-theirs"));
        let script = format!(
            "import torch, transformers as t\ntorch.manual_seed(3)\n\
             m = t.{class}(t.{config}({sizes}{comma}num_labels=2))\n\
             [torch.nn.init.normal_(p, std=0.2) for n, p in m.named_parameters() if p.ndim == 1 and 'bias' in n]\n\
             m.save_pretrained({theirs:?})",
            config = class.replace("ForImageClassification", "Config"),
            comma = if sizes.is_empty() { "" } else { ", " },
        );
        let made = output_of(std::process::Command::new(&python).args(["-c", &script]));
        assert!(made.status.success(), "{}", stderr(&made));
        let place = path(name);
        std::fs::create_dir(&place).unwrap();
        let model = format!("name = \"{name}\"\npretrained = {theirs:?}");
        let dataset = format!(
            "name = \"image-folder\"\nroot = {:?}\nimage_size = 32\nval_split = 0.2\ninterpolation = \"pil\"",
            path("images")
        );
        let (run, hub) = exported_with(&place, &model, &dataset, "0.0");
        let words: Vec<&str> = files.iter().map(String::as_str).chain(["--logits"]).collect();
        let ours: Vec<Value> =
            predicted(&run, &words).into_iter().map(|line| line["logits"].clone()).collect();
        // Training has moved what batch norm has seen, so that this is of the folder that was written again.
        let again = by_pytorch(&python, &hub, &format!("[predict(path).tolist() for path in {files:?}]"));
        let found = difference(&ours, &again);
        assert!(found < 1e-4, "{name}: {found}");
        let equal = format!(
            "(lambda a, b: [n for n in a if 'running_' not in n and 'num_batches' not in n and not a[n].equal(b[n])])\
             (*[transformers.AutoModelForImageClassification.from_pretrained(f).state_dict() for f in ({theirs:?}, '.')])"
        );
        assert_eq!(by_pytorch(&python, &hub, &equal), serde_json::json!([]), "{name}");
        if name == "vit" {
            let of_theirs = format!(
                "(lambda m: [m(sample(path)).logits[0].tolist() for path in {files:?}])\
                 (transformers.AutoModelForImageClassification.from_pretrained({theirs:?}).eval())"
            );
            let found = difference(&ours, &by_pytorch(&python, &hub, &of_theirs));
            assert!(found < 1e-5, "{name}: {found}");
        }
    }
}

/// transformers loads what has a class there, and the programs have the tokens of the run.
#[test]
fn exported_language_models_continue_texts_as_ddp_run_does() {
    let Ok(python) = std::env::var("DDP_RUN_TORCH_PYTHON") else {
        return println!(
            "skipped: DDP_RUN_TORCH_PYTHON does not name a Python that has torch, tokenizers and transformers"
        );
    };
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("t.txt"), "the cat sat on the mat, and the café was full. ".repeat(40)).unwrap();
    let mut made = ddp_run();
    made.args(["tokenizer", "train", "--vocab-size", "300", "--out"]).args([path("t.json"), path("t.txt")]);
    assert_code(&output_of(&mut made), 0);
    let by_file = format!("path = {:?}", path("t.json"));
    let cases = [
        ("name = \"gpt\"\nn_layer = 1\nn_head = 2\nn_embd = 32", "kind = 'bytes'", false),
        ("name = \"gpt\"\nn_layer = 1\nn_head = 2\nn_embd = 32", by_file.as_str(), true),
        ("name = \"gpt2\"", &by_file, true),
        ("name = \"llama\"", &by_file, true),
        ("name = \"llama\"\nmodel_type = 'mistral'\nsliding_window = 4", &by_file, true),
        (
            "name = \"llama\"\nmodel_type = 'qwen3'\nsliding_window = 4\nmax_window_layers = 1\nhead_dim = 24",
            &by_file,
            true,
        ),
    ];
    for (number, (model, tokenizer, has_class)) in cases.into_iter().enumerate() {
        let place = path(&number.to_string());
        std::fs::create_dir(&place).unwrap();
        let (file, cache) = (path("t.txt"), path("cache"));
        let dataset = format!(
            "name = \"text\"\npath = {file:?}\ncache = {cache:?}\nblock_size = 16\n[tokenizer]\n{tokenizer}"
        );
        let (run, hub) = exported(&place, model, &dataset);
        let words = ["--prompt", "the caf", "--temperature", "0", "--max-tokens", "9", "--out", "-"];
        let ours = predicted(&run, &words)[0]["text"].clone();
        let ours = format!("the caf{}", ours.as_str().unwrap());
        assert_eq!(by_pytorch(&python, &hub, "generate('the caf', 9, 0)"), ours.as_str(), "{model}");
        if has_class {
            let of_transformers = "(lambda t, m: t.decode(m.generate(**t('the caf', return_tensors='pt'), \
                max_new_tokens=9, do_sample=False)[0]))(*[getattr(__import__('transformers'), c)\
                .from_pretrained('.') for c in ('AutoTokenizer', 'AutoModelForCausalLM')])";
            assert_eq!(by_pytorch(&python, &hub, of_transformers), ours.as_str(), "{model}");
        }
    }
}
