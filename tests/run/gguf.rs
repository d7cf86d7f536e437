//! `ddp-run export --gguf`: the file by a reader of its own, by PyPI's `gguf`, and its text by llama.cpp where a Python has these.

use crate::common::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const MODELS: [(&str, &str); 3] = [
    ("llama", "name = 'llama'"),
    // Rows of 172 numbers are no whole blocks.
    ("qwen3", "name = 'llama'\nmodel_type = 'qwen3'\nhead_dim = 24\ntie_word_embeddings = true"),
    ("gpt2", "name = 'gpt2'"),
];

/// A text, a tokenizer of it, and what trains a model on it.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let text = "the cat sat on the mat, and the café was full of 12 dogs. ";
        std::fs::write(place.path("t.txt"), text.repeat(40)).unwrap();
        let mut made = ddp_run();
        made.args(["tokenizer", "train", "--vocab-size", "300", "--out"]);
        assert_code(&output_of(made.args([place.path("t.json"), place.path("t.txt")])), 0);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    #[track_caller]
    fn trained(&self, name: &str, model: &str, tokenizer: &str) -> PathBuf {
        let dir = self.path(name);
        std::fs::create_dir(&dir).unwrap();
        let spec = format!(
            "name = \"{name}\"\nseed = 1\nepochs = 2\nbatch_size = 8\ndevice = \"cpu\"\n[model]\n{model}\n\
             [tokenizer]\n{tokenizer}\n[dataset]\nname = \"text\"\npath = {:?}\ncache = {:?}\nblock_size = 16\n\
             [optimizer]\nname = \"adamw\"\nlr = 1e-2\n[launch]\nnproc_per_node = 1\nthreads = 1\n",
            self.path("t.txt"),
            self.path("cache")
        );
        trained(&dir, &spec)
    }

    fn by_file(&self) -> String {
        format!("path = {:?}", self.path("t.json"))
    }
}

fn export(run: &Path, flags: &[&str], file: &Path) -> std::process::Output {
    output_of(ddp_run().arg("export").arg(run).args(flags).arg("--gguf").arg(file))
}

/// Shape, type and bytes.
type StoredTensor = (Vec<usize>, u32, Vec<u8>);

/// The bytes of a file, read one value after another.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, count: usize) -> &[u8] {
        self.at += count;
        &self.bytes[self.at - count..self.at]
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().unwrap())
    }

    fn u64(&mut self) -> usize {
        u64::from_le_bytes(self.take(8).try_into().unwrap()) as usize
    }

    fn string(&mut self) -> String {
        let count = self.u64();
        String::from_utf8(self.take(count).to_vec()).unwrap()
    }

    fn value(&mut self, kind: u32) -> Value {
        match kind {
            4 => self.u32().into(),
            5 => (self.u32() as i32).into(),
            6 => f32::from_bits(self.u32()).into(),
            7 => (self.take(1)[0] == 1).into(),
            8 => self.string().into(),
            9 => {
                let (kind, count) = (self.u32(), self.u64());
                (0..count).map(|_| self.value(kind)).collect()
            }
            other => panic!("a value of type {other}"),
        }
    }
}

/// The metadata, and the tensors by name: dimensions (innermost first), type, and data.
#[track_caller]
fn read_gguf(path: &Path) -> (BTreeMap<String, Value>, BTreeMap<String, StoredTensor>) {
    let bytes = std::fs::read(path).unwrap();
    let mut file = Reader { bytes: &bytes, at: 0 };
    assert_eq!(file.take(4), b"GGUF");
    assert_eq!(file.u32(), 3);
    let (tensors, keys) = (file.u64(), file.u64());
    let pair = |file: &mut Reader<'_>| {
        let (key, kind) = (file.string(), file.u32());
        (key, file.value(kind))
    };
    let metadata: BTreeMap<String, Value> = (0..keys).map(|_| pair(&mut file)).collect();
    assert_eq!(metadata.len(), keys);
    let info = |file: &mut Reader<'_>| {
        let (name, count) = (file.string(), file.u32());
        let shape: Vec<usize> = (0..count).map(|_| file.u64()).collect();
        (name, shape, file.u32(), file.u64())
    };
    let infos: Vec<_> = (0..tensors).map(|_| info(&mut file)).collect();
    let begin = file.at.next_multiple_of(32);
    let mut end = begin;
    let mut found = BTreeMap::new();
    for (name, shape, kind, offset) in infos {
        // One behind another, each at a multiple of 32.
        assert_eq!(begin + offset, end, "{name}");
        let elements: usize = shape.iter().product();
        let size = match kind {
            0 => 4 * elements,
            1 | 30 => 2 * elements,
            8 => elements / 32 * 34,
            other => panic!("{name} has type {other}"),
        };
        end = (begin + offset + size).next_multiple_of(32);
        found.insert(name, (shape, kind, bytes[begin + offset..][..size].to_vec()));
    }
    assert_eq!((found.len(), end), (tensors, bytes.len()));
    (metadata, found)
}

#[test]
fn the_file_has_the_tensors_and_tokens_of_the_run() {
    let _alone = alone();
    let place = Place::new();
    let run = place.trained("toy", "name = 'llama'", "kind = 'bytes'");
    let file = place.path("m.gguf");
    let done = export(&run, &[], &file);
    assert_code(&done, 0);
    let said = stderr(&done);
    assert!(said.contains("m.gguf (21 tensors, ") && said.contains("(step "), "{said}");
    let (keys, tensors) = read_gguf(&file);
    assert_eq!((&keys["general.architecture"], &keys["general.name"]), (&"llama".into(), &"toy".into()));
    assert_eq!(keys["llama.context_length"], 16);
    let tokens = keys["tokenizer.ggml.tokens"].as_array().unwrap();
    assert_eq!((tokens.len(), &tokens[32], &tokens[256]), (257, &"Ġ".into(), &"<|endoftext|>".into()));
    assert_eq!(keys["tokenizer.ggml.add_bos_token"], false);
    // The rows of a tensor that is stored as it is.
    let weights = std::fs::read(newest_checkpoint(&run).join("model.safetensors")).unwrap();
    let (shape, kind, data) = &tensors["token_embd.weight"];
    assert_eq!((shape.as_slice(), *kind), (&[64, 257][..], 0));
    assert!(weights.windows(data.len()).any(|part| part == data.as_slice()));

    assert_code(&export(&run, &["--dtype", "q8_0"], &file), 0);
    let (_, tensors) = read_gguf(&file);
    let kinds = ["blk.1.attn_k.weight", "blk.1.attn_norm.weight", "blk.0.ffn_down.weight"];
    assert_eq!(kinds.map(|name| tensors[name].1), [8, 0, 1]);

    // Only this format has the type, and no file of a run is replaced.
    let mut other = ddp_run();
    other.arg("export").arg(&run).arg(place.path("m.safetensors")).args(["--dtype", "q8_0"]);
    assert_code(&output_of(&mut other), 2);
    assert_code(&export(&run, &[], &run.join("metrics.jsonl")), 2);
}

#[test]
fn what_llama_cpp_does_not_compute_is_refused() {
    let _alone = alone();
    let place = Place::new();
    let file = place.path("m.gguf");
    let cases = [
        ("chars", "name = 'gpt2'", "kind = 'chars'", "tokens are characters"),
        (
            "gelu",
            "name = 'gpt'\nn_layer = 1\nn_head = 2\nn_embd = 32",
            "kind = 'bytes'",
            "activation is `gelu`",
        ),
        (
            "window",
            "name = 'llama'\nmodel_type = 'mistral'\nsliding_window = 4",
            "kind = 'bytes'",
            "sliding window",
        ),
    ];
    for (name, model, tokenizer, why) in cases {
        let done = export(&place.trained(name, model, tokenizer), &[], &file);
        assert_code(&done, 78);
        let said = stderr(&done);
        let parts = ["cannot export to GGUF: ", why, "hint: "];
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    }
    let dir = place.path("cnn");
    std::fs::create_dir(&dir).unwrap();
    let spec = "name = \"cnn\"\nepochs = 1\nbatch_size = 8\ndevice = \"cpu\"\n[model]\nname = \"cnn\"\nchannels = [4]\nhidden = 8\n\
                [dataset]\nname = \"shapes\"\ntrain = 16\nval = 8\n[optimizer]\nname = \"sgd\"\nlr = 1e-2\n\
                [launch]\nnproc_per_node = 1\nthreads = 1\n";
    let done = export(&trained(&dir, spec), &[], &file);
    assert_code(&done, 78);
    assert!(stderr(&done).contains("no counterpart of the model `cnn`"), "{}", stderr(&done));
    assert!(!file.exists());
}

/// Compares FILE with CHECKPOINT, and prints the text that llama.cpp generates after PROMPT, as JSON; null without llama.cpp.
const COMPARE: &str = r#"
import json, sys
try:
    import numpy as np
    from gguf import GGUFReader, GGMLQuantizationType as T, quants
    from safetensors.numpy import load_file
except ImportError as e:
    sys.exit(print("missing:", e.name))
file, checkpoint, tokenizer, prompt = sys.argv[1:]
reader, weights = GGUFReader(file), load_file(checkpoint)
key = lambda name: reader.fields[name].contents()
arch = key("general.architecture")
parts = {"embed_tokens": "token_embd", "wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "norm": "output_norm",
    "lm_head": "output", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "q_proj": "attn_q", "k_proj": "attn_k",
    "v_proj": "attn_v", "o_proj": "attn_output", "q_norm": "attn_q_norm", "k_norm": "attn_k_norm", "gate_proj": "ffn_gate",
    "up_proj": "ffn_up", "down_proj": "ffn_down", "ln_1": "attn_norm", "ln_2": "ffn_norm", "c_attn": "attn_qkv",
    "attn.c_proj": "attn_output", "c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
def expected(name, x):
    words = name.split(".")
    stem = ".".join(words[-3:-1]) if words[-2] == "c_proj" else words[-2]
    if words[-2].startswith("c_") and words[-1] == "weight": x = x.T
    if arch == "llama" and stem in ("q_proj", "k_proj"):
        heads = key("llama.attention.head_count" + ("_kv" if stem == "k_proj" else ""))
        x = x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)
    number = [w for w in words if w.isdigit()]
    return (f"blk.{number[0]}." if number else "") + parts[stem] + "." + words[-1], np.ascontiguousarray(x)
theirs = {t.name: t for t in reader.tensors}
tied = len(theirs) < len(weights)
assert tied <= ("lm_head.weight" in weights), (sorted(theirs), sorted(weights))
for name, x in weights.items():
    if tied and name == "lm_head.weight": continue
    name, x = expected(name, x)
    t = theirs.pop(name)
    assert list(t.shape) == list(x.shape[::-1]), name
    assert np.array_equal(np.asarray(t.data).view(np.uint8).ravel(), quants.quantize(x, t.tensor_type).view(np.uint8).ravel()), name
    assert x.ndim > 1 or t.tensor_type == T.F32, name
assert not theirs, theirs
tokens, types = key("tokenizer.ggml.tokens"), key("tokenizer.ggml.token_type")
if tokenizer:
    t = json.load(open(tokenizer))
    assert all(tokens[i] == text for text, i in t["model"]["vocab"].items())
    assert [m.split(" ") for m in key("tokenizer.ggml.merges")] == [m if isinstance(m, list) else m.split(" ") for m in t["model"]["merges"]]
    assert [i for i, kind in enumerate(types) if kind == 3] == [a["id"] for a in t["added_tokens"]]
assert tokens[key("tokenizer.ggml.eos_token_id")] == "<|endoftext|>"
try:
    from llama_cpp import Llama
except ImportError:
    sys.exit(print("null"))
llama = Llama(file, n_ctx=16, verbose=False, n_threads=1, type_k=0, type_v=0)
ids, new = llama.tokenize(prompt.encode(), add_bos=False, special=True), []
for token in llama.generate(ids, temp=0.0, top_k=1, repeat_penalty=1.0):
    if token == llama.token_eos() or len(new) == 8: break
    new.append(token)
print(json.dumps(llama.detokenize(new, prev_tokens=ids).decode(errors="replace")))
"#;

#[test]
fn readers_of_gguf_find_what_the_checkpoint_has() {
    let Ok(python) = std::env::var("DDP_RUN_TORCH_PYTHON") else {
        return println!(
            "skipped: DDP_RUN_TORCH_PYTHON does not name a Python that has gguf and safetensors"
        );
    };
    let _alone = alone();
    let place = Place::new();
    let (prompt, file) = ("the caf", place.path("m.gguf"));
    for (number, (name, model)) in MODELS.into_iter().enumerate() {
        // One of them with the tokenizer of bytes.
        let tokenizer = if number == 0 { String::new() } else { place.path("t.json").display().to_string() };
        let table = if number == 0 { "kind = 'bytes'".to_owned() } else { place.by_file() };
        let run = place.trained(name, model, &table);
        let words = ["--prompt", prompt, "--temperature", "0", "--max-tokens", "8", "--out", "-"];
        let ours: Value = parse_json(stdout_of(ddp_run().arg("predict").arg(&run).args(words)).trim_end());
        for dtype in ["f32", "f16", "bf16", "q8_0"] {
            assert_code(&export(&run, &["--dtype", dtype], &file), 0);
            let mut compare = std::process::Command::new(&python);
            compare.args(["-c", COMPARE]).arg(&file).arg(newest_checkpoint(&run).join("model.safetensors"));
            let compared = output_of(compare.arg(&tokenizer).arg(prompt));
            assert!(compared.status.success(), "{name} {dtype}: {}", stderr(&compared));
            let found = stdout(&compared);
            if found.starts_with("missing") {
                return println!("skipped: {} in that Python", found.trim_end());
            }
            let found: Value = parse_json(found.trim_end());
            println!("{name} {dtype}: {found}");
            // Rounded weights may prefer another token.
            assert!(found.is_null() || dtype != "f32" || found == ours["text"], "{name}: {found}, {ours}");
        }
    }
}
