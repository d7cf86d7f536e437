use super::*;
use base::error::ErrorKind;
use serde_json::json;

/// A byte-level BPE with the tokens `ab` (256) and `<|end|>` (257).
fn byte_level() -> Json {
    let mut vocab: Map<String, Json> =
        alphabet().into_iter().enumerate().map(|(id, c)| (c.to_string(), json!(id))).collect();
    vocab.insert("ab".to_owned(), json!(256));
    let added = |id: u32, text: &str, special: bool| {
        json!({ "id": id, "content": text, "special": special, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false })
    };
    json!({
        "version": "1.0", "normalizer": null, "padding": null, "truncation": null, "post_processor": null,
        "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true },
        "decoder": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true },
        "added_tokens": [added(257, "<|end|>", true), added(259, "<tool>", false), added(260, "<|x|>", false)],
        "model": { "type": "BPE", "vocab": vocab, "merges": [["a", "b"]], "unk_token": null },
    })
}

fn of(json: &Json, rows: usize) -> Result<Vocabulary> {
    Vocabulary::of(&Tokenizer::from_json(json.to_string(), Some("<|end|>")).unwrap().0, rows)
}

#[test]
fn characters_of_bytes_are_those_of_gpt_2() {
    let alphabet = alphabet();
    assert_eq!(alphabet.len(), 256);
    let of = |byte: u8| alphabet[usize::from(byte)];
    assert_eq!([of(b' '), of(b'\n'), of(b'a'), of(0), of(0xad), of(0x7f)], ['Ġ', 'Ċ', 'a', 'Ā', 'Ń', 'ġ']);
    assert_eq!(alphabet.iter().collect::<HashSet<_>>().len(), 256);
}

#[test]
fn byte_level_bpe_keeps_its_ids_and_fills_up_the_embedding() {
    let found = of(&byte_level(), 263).unwrap();
    assert_eq!((found.pre, found.merges.as_slice()), ("gpt-2", &["a b".to_owned()][..]));
    let token = |id: usize| (found.tokens[id].0.as_str(), found.tokens[id].1);
    assert_eq!(token(97), ("a", Kind::Normal));
    assert_eq!(token(257), ("<|end|>", Kind::Control));
    assert_eq!(token(258), ("[PAD258]", Kind::Unused));
    assert_eq!(token(259), ("<tool>", Kind::UserDefined));
    assert_eq!((token(260), token(262)), (("<|x|>", Kind::Control), ("[PAD262]", Kind::Unused)));
    assert_eq!(found.special, [("bos", 257), ("eos", 257)]);
    let keys = found.metadata(Some("{{ messages }}"));
    assert_eq!(keys.last(), Some(&("tokenizer.chat_template".to_owned(), "{{ messages }}".into())));
    assert!(keys.contains(&("tokenizer.ggml.eos_token_id".to_owned(), Value::U32(257))));
    assert_eq!(of(&byte_level(), 260).unwrap_err().kind, ErrorKind::Spec);
}

#[test]
fn what_the_file_says_of_special_tokens_is_kept() {
    let mut json = byte_level();
    json["model"]["unk_token"] = json!("<tool>");
    json["post_processor"] = json!({ "type": "Sequence", "processors": [{ "type": "ByteLevel" }, {
        "type": "TemplateProcessing",
        "single": [{ "SpecialToken": { "id": "<|x|>", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }],
        "special_tokens": { "<|x|>": { "id": "<|x|>", "ids": [260], "tokens": ["<|x|>"] } },
    }] });
    json["added_tokens"][1]["lstrip"] = json!(true);
    json["normalizer"] = json!({ "type": "NFC" });
    // Of no text in UTF-8.
    json["model"]["vocab"].as_object_mut().unwrap().remove("ÿ");
    let found = of(&json, 261).unwrap();
    assert_eq!(found.special, [("bos", 260), ("eos", 257), ("unknown", 259)]);
    assert_eq!(found.warnings.len(), 2, "{:?}", found.warnings);
    assert!(found.warnings[1].contains("`lstrip` of the token `<tool>`"));
}

#[test]
fn bytes_are_a_bpe_without_merges() {
    let found = Vocabulary::of(&Tokenizer::of_bytes(), 257).unwrap();
    assert_eq!((found.tokens.len(), found.merges.len(), found.pre), (257, 0, "gpt-2"));
    assert_eq!(found.tokens[0xe9], ("é".to_owned(), Kind::Normal));
    assert_eq!(found.tokens[256], ("<|endoftext|>".to_owned(), Kind::Control));
    assert_eq!(found.special, [("bos", 256), ("eos", 256)]);
}

#[test]
fn bytes_that_are_no_tokens_are_mentioned() {
    let mut json = byte_level();
    json["model"]["vocab"].as_object_mut().unwrap().remove("c");
    let found = of(&json, 261).unwrap();
    assert!(found.warnings[0].starts_with("1 bytes are no tokens"), "{:?}", found.warnings);
    assert_eq!(found.tokens[99].1, Kind::Unused);
}

#[test]
fn other_tokenizers_are_refused() {
    let changed = |change: &dyn Fn(&mut Json)| {
        let mut json = byte_level();
        change(&mut json);
        let error = of(&json, 261).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Spec);
        error.message
    };
    for (part, change) in [
        (
            "`pre_tokenizer`",
            &(|json: &mut Json| json["pre_tokenizer"] = json!({ "type": "Whitespace" }))
                as &dyn Fn(&mut Json),
        ),
        ("`normalizer`", &|json| json["normalizer"] = json!({ "type": "Lowercase" })),
        ("SentencePiece", &|json| json["model"]["byte_fallback"] = json!(true)),
        ("Unigram", &|json| json["model"]["type"] = json!("Unigram")),
        ("`unk_token` for bytes", &|json| {
            json["model"]["unk_token"] = json!("<tool>");
            json["model"]["vocab"].as_object_mut().unwrap().remove("c");
        }),
        ("`end_of_word_suffix`", &|json| json["model"]["end_of_word_suffix"] = json!("</w>")),
        ("two tokens are called `[PAD258]`", &|json| json["added_tokens"][1]["content"] = json!("[PAD258]")),
    ] {
        let why = changed(change);
        assert!(why.contains(part), "{part}: {why}");
    }
    let characters = Vocabulary::of(&Tokenizer::of_characters("ab".chars()), 2).unwrap_err();
    assert!(characters.hint.is_some_and(|hint| hint.contains("kind = \"bytes\"")));
}
