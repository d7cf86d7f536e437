//! `ddp-run predict` and `export --hf` with the real binary: what they say of a split agrees with what `eval` measures of it, the
//! data is not needed, and an input that can't be used loses no other.

use crate::common::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;

fn spec(model: &str, dataset: &str, more: &str) -> String {
    format!(
        "name = \"used\"\nseed = 1\nepochs = 12\nbatch_size = 8\ndevice = \"cpu\"\n[model]\n{model}\n[dataset]\n{dataset}\n\
         [optimizer]\nname = \"adamw\"\nlr = 3e-3\n[launch]\nnproc_per_node = 1\nthreads = 1\n{more}"
    )
}

/// The exit code, the lines on standard output, and standard error.
#[track_caller]
fn predict(words: &[&str]) -> (Option<i32>, Vec<Value>, String) {
    let output = output_of(ddp_run().arg("predict").args(words));
    (output.status.code(), stdout(&output).lines().map(parse_json).collect(), stderr(&output))
}

#[track_caller]
fn eval(run: &Path, split: &str) -> Value {
    parse_json(stdout_of(ddp_run().arg("eval").arg(run).args(["--json", "--split", split])))
}

/// Rows of a table: kind, length, island, and mass in grams, some without a length.
fn table() -> Vec<[String; 4]> {
    let row = |i: usize| {
        let kind = ["Adelie", "Gentoo", "Chinstrap"][i % 3];
        // The kinds overlap, so that some rows are predicted wrongly.
        let length = 35.0 + 4.0 * (i % 3) as f64 + ((i * 37) % 100) as f64 / 12.5;
        let length = if i % 11 == 5 { String::new() } else { format!("{length:.1}") };
        let island = ["Biscoe", "Dream", "Torgersen"][(i / 3 + i % 2) % 3];
        [kind.to_owned(), length, island.to_owned(), format!("{}", 3000 + 500 * (i % 3) + (i * 13) % 90)]
    };
    (0..90).map(row).collect()
}

fn csv(columns: [usize; 4], rows: &[[String; 4]]) -> String {
    let names = ["species", "length", "island", "mass"];
    let line = |cells: [&str; 4]| columns.map(|at| cells[at]).join(",") + "\n";
    let rows = rows.iter().map(|row| line([&row[0], &row[1], &row[2], &row[3]]));
    std::iter::once(line(names)).chain(rows).collect()
}

#[test]
fn rows_of_a_table_agree_with_an_evaluation() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (data, rows) = (dir.path().join("t.csv"), table());
    std::fs::write(&data, csv([0, 1, 2, 3], &rows)).unwrap();
    let dataset = format!(
        "name = \"csv\"\npath = \"{}\"\ntarget = \"species\"\ntask = \"classification\"\nfeatures = [\"length\", \"island\"]\n\
         blanks = \"mean\"\nval_split = 0.0",
        data.display()
    );
    let run = trained(dir.path(), &spec("name = \"mlp\"\nhidden = [16]", &dataset, ""));
    let measured = eval(&run, "train");
    // The columns stand in another order, and the data is gone: the checkpoint alone is enough.
    let input = dir.path().join("other.csv");
    std::fs::write(&input, csv([3, 2, 0, 1], &rows)).unwrap();
    std::fs::remove_file(&data).unwrap();
    let checkpoint = dir.path().join("alone");
    std::fs::rename(newest_checkpoint(&run), &checkpoint).unwrap();
    std::fs::remove_dir_all(&run).unwrap();
    let (code, lines, said) = predict(&[checkpoint.to_str().unwrap(), input.to_str().unwrap()]);
    assert_eq!((code, lines.len()), (Some(0), rows.len()), "{said}");
    let correct = lines.iter().zip(&rows).filter(|(line, row)| line["class"] == row[0].as_str()).count();
    assert_eq!(correct as f64 / rows.len() as f64, measured["accuracy"].as_f64().unwrap());
    assert!(correct > 30 && correct < 90, "{correct} are correct: nothing was learnt, or all");
    assert_eq!((lines[0]["row"].as_u64(), lines[0]["line"].as_u64()), (Some(1), Some(2)));
    let probabilities: f64 =
        lines[0]["top"].as_array().unwrap().iter().map(|top| top["probability"].as_f64().unwrap()).sum();
    assert!((probabilities - 1.0).abs() < 1e-5);

    // Cells and rows that can't be used have a line each, and the other rows are there. Lines end as on Windows.
    let text = "island,length,note,note\nDream,40,,\nDreams,40,,\nDream,long,,\nBiscoe,,,\nDream\nDream,1e39,,\nDream,41,,\n";
    std::fs::write(&input, text.replace('\n', "\r\n")).unwrap();
    let out = dir.path().join("preds.jsonl");
    let words = [checkpoint.to_str().unwrap(), input.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let (code, lines, said) = predict(&words);
    assert_eq!((code, lines.len()), (Some(78), 0));
    assert!(said.contains("4 of 7 inputs can't be used") && said.contains("line 3:"), "{said}");
    let text = std::fs::read_to_string(&out).unwrap();
    let lines: Vec<Value> = text.lines().map(parse_json).collect();
    let wrong: Vec<bool> = lines.iter().map(|line| line.get("error").is_some()).collect();
    assert_eq!(wrong, [false, true, true, false, true, true, false]);
    assert!(lines.iter().zip(2u64..).all(|(line, at)| line["line"] == at), "{text}");
    assert_eq!(lines[4]["error"], "the row has 1 cell, and the first line has 4");
    assert_eq!(lines[5]["error"], "column `length`: `1e39` is too large");
    assert_eq!((lines[1]["column"].as_str(), lines[2]["column"].as_str()), (Some("island"), Some("length")));
    assert!(lines[1]["error"].as_str().unwrap().contains("did you mean `Dream`?"), "{}", lines[1]);
}

#[test]
fn numbers_are_in_the_units_of_the_table() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (data, rows) = (dir.path().join("t.csv"), table());
    std::fs::write(&data, csv([0, 1, 2, 3], &rows)).unwrap();
    let dataset = format!(
        "name = \"csv\"\npath = \"{}\"\ntarget = \"mass\"\nblanks = \"zero\"\nval_split = 0.0",
        data.display()
    );
    let run = trained(dir.path(), &spec("name = \"mlp\"\nhidden = [16]", &dataset, ""));
    let (code, lines, said) = predict(&[run.to_str().unwrap(), data.to_str().unwrap(), "--batch-size", "7"]);
    assert_eq!((code, lines.len()), (Some(0), rows.len()), "{said}");
    let error = |(line, row): (&Value, &[String; 4])| {
        (line["value"].as_f64().unwrap() - row[3].parse::<f64>().unwrap()).abs()
    };
    let mae = lines.iter().zip(&rows).map(error).sum::<f64>() / rows.len() as f64;
    let measured = eval(&run, "train")["mae"].as_f64().unwrap();
    assert!((mae / measured - 1.0).abs() < 1e-4, "{mae} against {measured}");
}

/// Held-out rows have another mean, another order of columns, and lack a class: the checkpoint's encoding counts, on all ranks.
#[test]
fn held_out_rows_are_evaluated_as_they_are_predicted() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (data, rows) = (dir.path().join("t.csv"), table());
    std::fs::write(&data, csv([0, 1, 2, 3], &rows)).unwrap();
    let dataset = |path: &Path| {
        format!(
            "name = \"csv\"\npath = \"{}\"\ntarget = \"species\"\ntask = \"classification\"\nblanks = \"mean\"\nval_split = 0.0",
            path.display()
        )
    };
    let model = "name = \"mlp\"\nhidden = [16]";
    let run = trained(dir.path(), &spec(model, &dataset(&data), ""));
    // No Adelie, and no short ones.
    let held_out: Vec<[String; 4]> = rows
        .into_iter()
        .filter(|row| row[0] != "Adelie" && row[1].parse::<f64>().is_ok_and(|length| length > 42.0))
        .collect();
    let path = dir.path().join("held-out.csv");
    std::fs::write(&path, csv([3, 2, 0, 1], &held_out)).unwrap();
    let (code, lines, said) = predict(&[run.to_str().unwrap(), path.to_str().unwrap()]);
    assert_eq!((code, lines.len()), (Some(0), held_out.len()), "{said}");
    let correct = lines.iter().zip(&held_out).filter(|(line, row)| line["class"] == row[0].as_str()).count();
    let other = dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let spec = write_spec(&other, &spec(model, &dataset(&path), ""));
    let output = output_of(
        ddp_run()
            .arg("eval")
            .arg(&spec)
            .args(["--json", "--split", "train", "--per-class", "--nproc-per-node", "2", "--checkpoint"])
            .arg(newest_checkpoint(&run)),
    );
    assert_code(&output, 0);
    let found = parse_json(&output.stdout);
    assert_eq!(found["accuracy"].as_f64().unwrap(), correct as f64 / held_out.len() as f64, "{found}");
    assert!(correct * 2 > held_out.len(), "{correct} of {}", held_out.len());
    let said = stderr(&output);
    assert!(said.contains("lack 1 of 3 classes: `Adelie`") && !said.contains("has changed"), "{said}");
    assert!(said.contains("the data is not that of the checkpoint: "), "{said}");
}

/// Writes images of two classes, and returns those of the validation split by path.
fn write_images(root: &Path) -> BTreeMap<PathBuf, &'static str> {
    let mut val = BTreeMap::new();
    for i in 0..40u32 {
        let class = ["dark", "light"][i as usize % 2];
        let split = if i < 24 { "train" } else { "val" };
        let path = root.join(format!("{split}/{class}/{i}.png"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let level = 90 + 40 * (i % 2);
        let pixel = |x: u32, y: u32| {
            let noise = (x * 31 + y * 17 + i * 7).wrapping_mul(2_654_435_761) % 97;
            image::Rgb([(level + noise) as u8, (level + noise / 2) as u8, (noise * 2) as u8])
        };
        image::RgbImage::from_fn(20 + i % 5, 18, pixel).save(&path).unwrap();
        if split == "val" {
            val.insert(path, class);
        }
    }
    val
}

#[test]
fn images_agree_with_an_evaluation_and_a_bad_one_loses_no_other() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("images");
    let val = write_images(&root);
    let dataset = format!(
        "name = \"image-folder\"\nroot = \"{}\"\nimage_size = 16\naugment = [\"crop\", \"flip\"]",
        root.display()
    );
    let run = trained(dir.path(), &spec("name = \"cnn\"\nchannels = [4]\nhidden = 8", &dataset, ""));
    let measured = eval(&run, "val");
    let bad = root.join("val/dark/0-bad.png");
    std::fs::write(&bad, "no image").unwrap();
    let (run_name, folder) = (run.to_str().unwrap(), root.join("val"));
    let (code, lines, said) = predict(&[run_name, folder.to_str().unwrap(), "--top", "1"]);
    assert_eq!(code, Some(78), "{said}");
    assert_eq!(lines.len(), val.len() + 1);
    let (wrong, right): (Vec<&Value>, Vec<&Value>) =
        lines.iter().partition(|line| line.get("error").is_some());
    assert_eq!(wrong.len(), 1);
    assert_eq!(wrong[0]["input"], bad.to_str().unwrap());
    let is_correct = |line: &&&Value| {
        let path = PathBuf::from(line["input"].as_str().unwrap());
        line["class"] == val[&path]
    };
    let correct = right.iter().filter(is_correct).count();
    assert_eq!(correct as f64 / val.len() as f64, measured["accuracy"].as_f64().unwrap());

    // A file alone, and one that is not there.
    let one = val.keys().next().unwrap().to_str().unwrap();
    let (code, lines, _) = predict(&[run_name, one, "nowhere.png", "--checkpoint", "best"]);
    assert_eq!((code, lines.len()), (Some(78), 2));
    assert!(lines[1]["error"].as_str().unwrap().starts_with("cannot read it"), "{}", lines[1]);

    export_of_images(dir.path(), &run);
}

/// With a table of names and numbers. What is predicted is in the numbers' own units.
#[test]
fn numbers_of_images_agree_with_an_evaluation() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("images");
    let val = write_images(&root);
    let number = |path: &Path| {
        let i: f64 = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        1000.0 + 50.0 * (i % 2.0) + i
    };
    for split in ["train", "val"] {
        let mut table = String::from("file,weight\n");
        for class in ["dark", "light"] {
            for entry in std::fs::read_dir(root.join(split).join(class)).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_stem().unwrap().to_string_lossy();
                table += &format!("{split}/{class}/{name},{}\n", number(&path));
            }
        }
        std::fs::write(root.join(format!("{split}.csv")), table).unwrap();
    }
    let dataset = format!(
        "name = \"image-csv\"\nroot = \"{}\"\nval = \"val.csv\"\nimage = \"file\"\ntarget = \"weight\"\ntask = \"regression\"\nimage_size = 16",
        root.display()
    );
    let run = trained(dir.path(), &spec("name = \"cnn\"\nchannels = [4]\nhidden = 8", &dataset, ""));
    let mae = eval(&run, "val")["mae"].as_f64().unwrap();
    let (code, lines, said) = predict(&[run.to_str().unwrap(), root.join("val").to_str().unwrap()]);
    assert_eq!((code, lines.len()), (Some(0), val.len()), "{said}");
    let error = |line: &Value| {
        let path = PathBuf::from(line["input"].as_str().unwrap());
        (line["value"].as_f64().unwrap() - number(&path)).abs()
    };
    let found = lines.iter().map(error).sum::<f64>() / lines.len() as f64;
    assert!((found - mae).abs() < 1e-3 * mae, "{found}, and {mae} in the evaluation");
    assert!(mae < 50.0, "the mean alone has more: {mae}");
}

fn export_of_images(dir: &Path, run: &Path) {
    let hub = dir.join("hub/used");
    let export = |more: &[&str]| output_of(ddp_run().arg("export").arg(run).arg("--hf").arg(&hub).args(more));
    assert_code(&export(&[]), 0);
    let read = |name: &str| std::fs::read_to_string(hub.join(name)).unwrap();
    let json = |name: &str| parse_json(read(name));
    let config = json("config.json");
    assert_eq!(config["architectures"], serde_json::json!(["cnn"]));
    assert_eq!(config["id2label"], serde_json::json!({ "0": "dark", "1": "light" }));
    assert_eq!(config["label2id"]["light"], 1);
    assert_eq!(config["model"]["hidden"], 8);
    assert_eq!(config["input"]["shape"], serde_json::json!([3, 16, 16]));
    let images = json("preprocessor_config.json");
    assert_eq!((&images["size"]["shortest_edge"], &images["do_normalize"]), (&16.into(), &true.into()));
    // Without it, `AutoImageProcessor` asks for a model of the `transformers` library.
    assert_eq!(images["image_processor_type"], "CLIPImageProcessor");
    let weights = std::fs::read(hub.join("model.safetensors")).unwrap();
    // One file of a chosen checkpoint.
    let file = dir.join("last.safetensors");
    for chosen in ["best", "last", newest_checkpoint(run).file_name().unwrap().to_str().unwrap()] {
        let one = output_of(ddp_run().arg("export").arg(run).arg(&file).args(["--checkpoint", chosen]));
        assert_code(&one, 0);
    }
    assert_eq!(weights, std::fs::read(&file).unwrap());
    assert_eq!(weights, std::fs::read(newest_checkpoint(run).join("model.safetensors")).unwrap());
    let card = read("README.md");
    assert!(card.starts_with("---\nlibrary_name: ddp-run\npipeline_tag: image-classification\n"), "{card}");
    let accuracy = eval_accuracy_in(&card);
    assert_eq!(accuracy, events(run).iter().rev().find_map(|e| e["val"]["accuracy"].as_f64()).unwrap());
    let program = card.split_once("```python\n").unwrap().1.split_once("```\n").unwrap().0;
    for part in [
        "CHANNELS = [4]\n",
        "IMAGE = [3, 16, 16]\n",
        "model = Cnn()\n",
        "MEAN = [0.485, ",
        "def predict(path):",
    ] {
        assert!(program.contains(part), "`{part}` is missing:\n{program}");
    }
    assert!(card.contains("does not know the `model_type` in `config.json`"), "{card}");
    assert!(!card.contains(&dir.display().to_string()), "the card names folders of this machine:\n{card}");

    // What is there stays, unless it is asked for.
    std::fs::write(hub.join("mine.txt"), "mine").unwrap();
    let refused = export(&[]);
    assert_code(&refused, 2);
    assert!(stderr(&refused).contains("is not empty"), "{}", stderr(&refused));
    std::fs::write(hub.join("README.md"), "old").unwrap();
    assert_code(&export(&["--force", "--dtype", "bf16"]), 0);
    assert_eq!((read("mine.txt").as_str(), read("README.md")), ("mine", card));
    assert!(std::fs::metadata(hub.join("model.safetensors")).unwrap().len() < weights.len() as u64);
    let hidden = std::fs::read_dir(hub.parent().unwrap()).unwrap().count();
    assert_eq!(hidden, 1, "something is left beside the folder");
}

/// The accuracy in the front matter.
fn eval_accuracy_in(card: &str) -> f64 {
    let (_, behind) = card.split_once("- type: \"accuracy\"\n      value: ").expect("it is measured");
    behind.lines().next().unwrap().parse().unwrap()
}

/// transformers' names and layouts, in one file or several, are those that `pretrained` takes; config.json gives the sizes.
#[test]
fn runs_start_from_exported_folders() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.txt");
    std::fs::write(&file, "the cat sat on the mat. ".repeat(20)).unwrap();
    let text = format!("name = \"text\"\npath = {file:?}\nblock_size = 16\nmax_train = 64");
    let shapes = "name = \"shapes\"\ntrain = 48\nval = 16\nsize = 16\nchannels = 3";
    let vit = "preset = \"cifar\"\nnum_layers = 2\nhidden_dim = 48\nmlp_dim = 40\nlayer_norm_eps = 1e-5";
    let cases = [
        ("vit", vit, shapes, "5GB", "vit.encoder.layer.1.attention.attention.key.bias"),
        ("resnet18", "", shapes, "5MB", "resnet.encoder.stages.1.layers.0.shortcut.convolution.weight"),
        ("gpt", "n_layer = 2\nn_head = 2\nn_embd = 32", &text, "40KB", "transformer.h.1.mlp.c_fc.weight"),
    ];
    for (name, sizes, dataset, shard, tensor) in cases {
        let place = |name: &str| dir.path().join(name);
        let (first, second) = (place(&format!("{name}-1")), place(&format!("{name}-2")));
        [&first, &second].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        let short = |model: &str| spec(model, dataset, "").replace("epochs = 12", "epochs = 1");
        let run = trained(&first, &short(&format!("name = \"{name}\"\n{sizes}")));
        let hub = place(&format!("{name}-hub"));
        let mut export = ddp_run();
        export.arg("export").arg(&run).arg("--hf").arg(&hub).args(["--max-shard-size", shard]);
        assert_code(&output_of(&mut export), 0);
        let exported = ddp_run::testing::read_weights(&hub).unwrap();
        assert!(exported.get(tensor).is_some(), "{name} has no {tensor}");
        assert_eq!(hub.join("model.safetensors.index.json").exists(), shard != "5GB", "{name}");

        let model = format!("name = \"{name}\"\npretrained = {hub:?}");
        let run_again = trained(&second, &short(&model).replace("lr = 3e-3", "lr = 0.0"));
        let weights = |run: &Path| {
            let all = ddp_run::testing::read_weights(&newest_checkpoint(run)).unwrap().into_tensors();
            // A step of training moves what batch norm has seen.
            let fixed =
                all.into_iter().filter(|t| !["running_", "num_batches"].iter().any(|s| t.name.contains(s)));
            fixed.collect::<Vec<_>>()
        };
        assert_eq!(weights(&run_again), weights(&run), "{name}");

        // One file in the place of several.
        let mut export = ddp_run();
        export.arg("export").arg(&run).arg("--hf").arg(&hub).arg("--force");
        assert_code(&output_of(&mut export), 0);
        let files =
            std::fs::read_dir(&hub).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let files: Vec<String> = files.filter(|file| file.starts_with("model")).collect();
        assert_eq!(files, ["model.safetensors"], "{name}");
        assert_eq!(ddp_run::testing::read_weights(&hub).unwrap().len(), exported.len());
    }
}

#[test]
fn texts_are_continued_and_the_same_seed_gives_the_same_text() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("t.txt");
    std::fs::write(&data, "the cat sat on the mat. ".repeat(60)).unwrap();
    let dataset = format!("name = \"text\"\npath = \"{}\"\nblock_size = 16\nmax_train = 400", data.display());
    let model = "name = \"gpt\"\nn_layer = 2\nn_head = 2\nn_embd = 32";
    let run = trained(dir.path(), &spec(model, &dataset, "[train]\neval_every = 1\n"));
    std::fs::remove_file(&data).unwrap();
    let run = run.to_str().unwrap();
    let text = |more: &[&str]| {
        let words = [run, "--prompt", "the c", "--max-tokens", "40"];
        stdout_of(ddp_run().arg("predict").args(words).args(more))
    };
    let greedy = text(&["--temperature", "0"]);
    assert!(greedy.starts_with("the cat sat on the mat. the cat"), "{greedy}");
    // 40 characters, more than the context holds, and the line end.
    assert_eq!(greedy.chars().count(), 5 + 40 + 1);
    let drawn = |seed| text(&["--temperature", "5", "--seed", seed]);
    assert_eq!(drawn("1"), drawn("1"));
    assert_ne!(drawn("1"), drawn("2"));
    assert_eq!(text(&["--temperature", "5", "--top-k", "1"]), greedy);

    let (file, unknown) = (dir.path().join("p.txt"), dir.path().join("q.txt"));
    std::fs::write(&file, "the m").unwrap();
    std::fs::write(&unknown, "the Zoo").unwrap();
    let words =
        [run, "--prompt", "sat", "--out", "-", "--max-tokens", "3", "--temperature", "0"].map(str::to_owned);
    let files = [&file, &unknown].map(|path| path.to_str().unwrap().to_owned());
    let words: Vec<&str> = words.iter().chain(&files).map(String::as_str).collect();
    let (code, lines, said) = predict(&words);
    assert_eq!((code, lines.len()), (Some(78), 3), "{said}");
    assert_eq!((lines[0]["prompt"].as_str(), lines[0]["text"].as_str()), (Some("sat"), Some(" on")));
    assert_eq!(lines[1]["text"], "at.");
    assert!(lines[2]["error"].as_str().unwrap().contains("`Z` (U+005A)"), "{}", lines[2]);
    // A reader that goes ends the work; the text would take days.
    let mut child = ddp_run()
        .args(["predict", run, "--prompt", "the c", "--max-tokens", "1000000000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut some = [0; 20];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    assert_eq!(finish(child).status.code(), Some(0));
    let (code, _, said) = predict(&[run, unknown.to_str().unwrap()]);
    assert_eq!((code, said.matches("U+005A").count()), (Some(78), 1), "{said}");
    assert!(!said.contains("lines with `error`"), "there are no lines:\n{said}");
    let (code, _, said) = predict(&[run]);
    assert_eq!(code, Some(2));
    assert!(said.contains("`--prompt TEXT`"), "{said}");
}
