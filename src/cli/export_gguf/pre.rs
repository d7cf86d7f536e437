//! How llama.cpp calls the ways in which texts are cut before their bytes are merged (`tokenizer.ggml.pre`).

use serde_json::Value as Json;

/// That of GPT-2, which `ByteLevel` has.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DIGIT: &str = r"\p{N}";

/// The regular expressions one after another, whether a piece that is a token is not merged, and llama.cpp's name
/// (llama-vocab.cpp).
const KNOWN: [(&[&str], bool, &str); 6] = [
    (&[GPT2], false, "gpt-2"),
    (&[DIGIT, GPT2], false, "smollm"),
    (&[LLAMA3], true, "llama-bpe"),
    (&[LLAMA3], false, "dbrx"),
    (&[QWEN2], false, "qwen2"),
    (&[QWEN35], false, "qwen35"),
];

/// The name for a `pre_tokenizer` of tokenizer.json, and the model's `ignore_merges`; `None` if llama.cpp is not known to have it.
pub(super) fn name(pre_tokenizer: &Json, ignore_merges: bool) -> Option<&'static str> {
    let mut found = Vec::new();
    let mut is_of_bytes = false;
    let steps = match pre_tokenizer["pretokenizers"].as_array() {
        Some(steps) if pre_tokenizer["type"] == "Sequence" => steps.iter().collect(),
        _ => vec![pre_tokenizer],
    };
    for step in steps {
        // Bytes are the last step.
        if is_of_bytes {
            return None;
        }
        let flag = |key: &str, default: bool| step[key].as_bool().unwrap_or(default);
        match step["type"].as_str()? {
            "ByteLevel" if !flag("add_prefix_space", true) => {
                is_of_bytes = true;
                if flag("use_regex", true) {
                    found.push(GPT2);
                }
            }
            "Digits" if flag("individual_digits", false) => found.push(DIGIT),
            "Split" if step["behavior"] == "Isolated" && !flag("invert", false) => {
                found.push(step["pattern"]["Regex"].as_str()?);
            }
            _ => return None,
        }
    }
    let known = KNOWN.iter().find(|(steps, ignores, _)| *steps == found && *ignores == ignore_merges);
    known.filter(|_| is_of_bytes).map(|(.., name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn published_pre_tokenizers_have_their_names() {
        let bytes = |use_regex: bool| json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex });
        let split = |regex: &str| json!({ "type": "Split", "pattern": { "Regex": regex }, "behavior": "Isolated", "invert": false });
        let all = |steps: Vec<Json>| json!({ "type": "Sequence", "pretokenizers": steps });
        let digits = json!({ "type": "Digits", "individual_digits": true });
        // As in the files of GPT-2 and Llama 3.
        let gpt2 = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true });
        assert_eq!(name(&gpt2, false), Some("gpt-2"));
        assert_eq!(name(&all(vec![split(GPT2), bytes(false)]), false), Some("gpt-2"));
        assert_eq!(name(&all(vec![digits.clone(), bytes(true)]), false), Some("smollm"));
        let llama3 = all(vec![split(LLAMA3), bytes(false)]);
        assert_eq!((name(&llama3, true), name(&llama3, false)), (Some("llama-bpe"), Some("dbrx")));
        let qwen2 = all(vec![split(QWEN2), bytes(false)]);
        assert_eq!((name(&qwen2, false), name(&qwen2, true)), (Some("qwen2"), None));
        for other in [
            bytes(false),
            digits.clone(),
            json!({ "type": "ByteLevel", "add_prefix_space": true }),
            all(vec![bytes(true), digits]),
            all(vec![split(r"\s+"), bytes(false)]),
            json!({ "type": "Metaspace" }),
            Json::Null,
        ] {
            assert_eq!(name(&other, false), None, "{other}");
        }
    }
}
