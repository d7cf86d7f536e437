//! Text by a tokenizer with the real binary: one is made, its tokens are written once, and a model keeps it.

use crate::common::*;
use serde_json::Value;
use std::path::Path;

/// Lines of JSON, each a document.
fn write_texts(to: &Path) {
    let words = ["the cat", "a dog", "one café", "two birds"];
    let text = |i: usize| format!("{} sat on the {}.", words[i % 4], words[i / 4 % 4]);
    let line = |i| serde_json::json!({ "id": i, "body": text(i) }).to_string() + "\n";
    std::fs::write(to, (0..400).map(line).collect::<String>()).unwrap();
}

/// Of 16 tokens: 6 by each of them and weight of the block's matrices and the head, of 280 tokens, and 12 by each pair and element of the heads.
const FLOPS: f64 = 16.0 * (6.0 * (12.0 * 32.0 * 32.0 + 280.0 * 32.0) + 12.0 * 32.0 * 16.0);

fn spec(dir: &Path, tokenizer: &str, dataset: &str) -> std::path::PathBuf {
    let text = format!(
        "name = \"tokens\"\nseed = 1\nepochs = 4\nbatch_size = 4\nsave_every = \"1 epoch\"\ndevice = \"cpu\"\n\
         [model]\nname = \"gpt\"\nn_layer = 1\nn_head = 2\nn_embd = 32\n[tokenizer]\n{tokenizer}\n\
         [dataset]\n{dataset}\nblock_size = 16\n[optimizer]\nname = \"adamw\"\nlr = 1e-2\n\
         [launch]\nnproc_per_node = 2\nthreads = 1\n"
    );
    write_spec(dir, &text)
}

fn last_epoch(out: &Path) -> Value {
    events(out).into_iter().rfind(|e| e["event"] == "epoch").expect("an epoch")
}

#[test]
fn a_tokenizer_is_made_used_and_kept_with_the_model() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    write_texts(&path("a.jsonl"));
    let made = |more: &[&str]| {
        let mut command = ddp_run();
        command.args(["tokenizer", "train", "--vocab-size", "280", "--text", "body"]).args(more);
        output_of(command.arg("--out").arg(path("tokenizer.json")).arg(path("a.jsonl")))
    };
    let said = stdout(&made(&[]));
    assert!(said.ends_with("tokenizer.json: 280 tokens\n"), "{said}");
    let written = std::fs::read(path("tokenizer.json")).unwrap();
    assert_code(&made(&[]), 2);
    assert_code(&made(&["--force"]), 0);
    assert_eq!(std::fs::read(path("tokenizer.json")).unwrap(), written);

    let dataset =
        format!("name = 'text'\npath = {:?}\ntext = 'body'\ncache = {:?}", path("*.jsonl"), path("cache"));
    let spec = spec(dir.path(), &format!("path = {:?}", path("tokenizer.json")), &dataset);
    let first = train(&spec, &path("first"), &[]);
    assert_code(&first, 0);
    let tokenised = " of text in 400 documents are ";
    assert_eq!(stderr(&first).matches(tokenised).count(), 1, "{}", stderr(&first));
    // In advance, there is nothing left to do.
    let ready = stdout_of(ddp_run().args(["data", "tokenize"]).arg(&spec));
    assert!(ready.contains("nothing to do"), "{ready}");
    let second = train(&spec, &path("second"), &[]);
    assert_code(&second, 0);
    assert!(!stderr(&second).contains(tokenised), "{}", stderr(&second));
    let [a, b] = ["first", "second"].map(|name| last_epoch(&path(name)));
    assert_eq!((&a["train"], &a["val"]), (&b["train"], &b["val"]));
    let [samples, tokens] = ["samples_per_s", "tokens_per_s"].map(|name| a[name].as_f64().unwrap());
    assert!((tokens / samples - 16.0).abs() < 1e-9, "{tokens} tokens/s, {samples} samples/s");
    let [flops, mfu] = ["flops_per_s", "mfu"].map(|name| a[name].as_f64().unwrap());
    assert!((flops / samples / FLOPS - 1.0).abs() < 1e-9, "{} FLOP a sample", flops / samples);
    // By what the machine could do at the start, while other programs may have had a share of it.
    assert!(mfu > 0.0 && mfu.is_finite(), "{mfu}");
    // Fewer bits than a byte has, and more bytes than tokens.
    let of = |name: &str| a["val"][name].as_f64().unwrap();
    let (bits, loss) = (of("bits_per_byte"), of("loss"));
    assert!(bits > 0.0 && bits < loss / std::f64::consts::LN_2, "{bits} {loss}");

    // Neither the text nor the tokenizer is needed any more.
    for name in ["a.jsonl", "tokenizer.json"] {
        std::fs::remove_file(path(name)).unwrap();
    }
    let predict = |more: &[&str]| {
        let mut command = ddp_run();
        command.arg("predict").arg(path("first")).args(["--temperature", "0", "--prompt", "the cat sat"]);
        stdout_of(command.args(more))
    };
    let text = predict(&[]);
    // It has learnt that documents end with a full stop, and to end them.
    assert!(text.starts_with("the cat sat on the ") && text.trim_end().ends_with('.'), "{text}");
    assert!(text.len() < 60, "{text}");
    let stopped = predict(&["--stop", " the", "--out", "-"]);
    let line: Value = parse_json(stopped.trim_end());
    assert_eq!((line["prompt"].as_str(), line["text"].as_str()), (Some("the cat sat"), Some(" on")));
    assert_code(&output_of(ddp_run().arg("export").arg(path("first")).arg("--hf").arg(path("hf"))), 0);
    assert_eq!(std::fs::read(path("hf/tokenizer.json")).unwrap(), written);

    let missing = train(&spec, &path("third"), &[]);
    assert_code(&missing, 78);
    assert!(stderr(&missing).contains("tokenizer.json is missing"), "{}", stderr(&missing));
}

/// The run of what was tokenised by another tokenizer is not that of before.
#[test]
fn a_run_does_not_go_on_with_another_tokenizer() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    write_texts(&path("a.jsonl"));
    let dataset =
        format!("name = 'text'\npath = {:?}\ntext = 'body'\ncache = {:?}", path("a.jsonl"), path("cache"));
    let bytes = spec(dir.path(), "kind = 'bytes'", &dataset);
    let out = path("out");
    assert_code(&train(&bytes, &out, &["--set", "train.max_steps=3"]), 0);
    let chars = train(&bytes, &out, &["--set", "tokenizer.kind=chars", "--accept-changes"]);
    assert_code(&chars, 78);
    assert!(stderr(&chars).contains("the tokens of `[tokenizer]` are not those of the checkpoint"));
    assert_eq!(events(&out).iter().filter(|e| e["event"] == "epoch").count(), 1, "{}", stderr(&chars));
}

#[test]
fn documents_are_packed_or_padded_and_a_checkpoint_stands_alone() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    write_texts(&path("a.jsonl"));
    let dataset = format!(
        "name = 'text'\npath = {:?}\ntext = 'body'\ncache = {:?}\npack = 'documents'",
        path("a.jsonl"),
        path("cache")
    );
    let spec = spec(dir.path(), "kind = 'bytes'", &dataset);
    let trained = train(&spec, &path("out"), &["--set", "dataset.block_size=40", "--set", "epochs=1"]);
    assert_code(&trained, 0);
    let said = stderr(&trained);
    assert!(said.contains(" rows of 40 tokens, "), "{said}");
    // The same targets in other rows have the same loss.
    let val = &last_epoch(&path("out"))["val"];
    let eval = ddp_run()
        .arg("eval")
        .arg(path("out"))
        .args(["--set", "dataset.pack=none", "--json"])
        .output()
        .unwrap();
    assert_code(&eval, 0);
    let found: Value = serde_json::from_str(&stdout(&eval)).unwrap();
    for name in ["loss", "accuracy", "bits_per_byte"] {
        let [found, expected] = [&found[name], &val[name]].map(|value| value.as_f64().unwrap());
        assert!((found / expected - 1.0).abs() < 1e-5, "{name}: {found}, {expected}");
    }
    // Whose tokens have no documents without the tokenizer.
    std::fs::remove_file(path("a.jsonl")).unwrap();
    let checkpoint = path("alone");
    std::fs::rename(newest_checkpoint(&path("out")), &checkpoint).unwrap();
    std::fs::remove_dir_all(path("out")).unwrap();
    let predicted = ddp_run()
        .arg("predict")
        .arg(&checkpoint)
        .args(["--prompt", "the cat", "--max-tokens", "3"])
        .output()
        .unwrap();
    assert_code(&predicted, 0);
    let chars = train(&spec, &path("chars"), &["--set", "tokenizer.kind=chars"]);
    assert_code(&chars, 78);
    assert!(stderr(&chars).contains("needs documents"), "{}", stderr(&chars));
}
