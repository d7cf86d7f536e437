use super::pieces::{OwnedPart, PIECE, Pieces, Place};
use super::*;
use crate::testing::shared;
use base::error::Error;
use std::sync::Mutex;

/// Documents in memory, which may fail on the way.
struct Documents {
    all: Vec<String>,
    identity: &'static str,
    /// Which document can't be read.
    fails_at: Option<u64>,
    /// Where readings began.
    begun: Mutex<Vec<(u64, u64)>>,
    /// The identity changes with each reading.
    changes: bool,
}

impl Documents {
    fn new(all: Vec<String>, identity: &'static str) -> Self {
        Self { all, identity, fails_at: None, begun: Mutex::default(), changes: false }
    }

    fn begun(&self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.begun.lock().unwrap())
    }
}

impl Texts for Documents {
    fn identity(&self) -> Result<String> {
        let readings = if self.changes { self.begun.lock().unwrap().len() } else { 0 };
        Ok(format!("{}{readings}", self.identity))
    }

    fn read(&self, document: u64, offset: u64, each: &mut dyn FnMut(Chunk<'_>) -> Result<()>) -> Result<()> {
        let mut begun = self.begun.lock().unwrap();
        // The first one is for the digest.
        let digest = begun.is_empty();
        begun.push((document, offset));
        drop(begun);
        for (number, text) in (0..).zip(&self.all).skip(document as usize) {
            if self.fails_at == Some(number) && !digest {
                return Err(Error::data("it ends here"));
            }
            let start = if number == document { offset as usize } else { 0 };
            each(Chunk { document: number, part: Part::Text(&text[start..]), ends: true })?;
        }
        Ok(())
    }

    fn place(&self) -> String {
        "these".to_owned()
    }
}

fn all_of(file: &TokenFiles) -> Vec<i64> {
    let mut all = vec![0; file.len()];
    file.read(0, &mut all).unwrap();
    all
}

/// As one of the files of a split.
fn tokens(
    cache: &Cache,
    texts: &dyn Texts,
    tokenizer: &Tokenizer,
    say: &mut dyn FnMut(&str),
) -> Result<TokenFiles> {
    super::tokens(cache, texts, tokenizer, say).map(TokenFiles::from)
}

fn silent(_: &str) {}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn documents_end_with_the_end_token_and_are_tokenised_once() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path());
    let bytes = Tokenizer::of_bytes();
    let texts = Documents::new(vec!["aé".into(), String::new(), "b".into()], "one");
    let file = tokens(&cache, &texts, &bytes, &mut silent).unwrap();
    let expected = [97, 0xc3, 0xa9, 256, 256, 98, 256];
    assert_eq!(all_of(&file), expected);
    let mut some = [0; 3];
    file.read(2, &mut some).unwrap();
    assert_eq!(some, [0xa9, 256, 256]);
    // What has not changed is not read again.
    assert_eq!(texts.begun().len(), 2);
    let again = tokens(&cache, &texts, &bytes, &mut silent).unwrap();
    assert_eq!((texts.begun().len(), again.content()), (0, file.content()));
    // A copy is read, and not tokenised.
    let copy = Documents::new(texts.all.clone(), "copy");
    assert_eq!(all_of(&tokens(&cache, &copy, &bytes, &mut silent).unwrap()), expected);
    assert_eq!(copy.begun(), [(0, 0)]);
    // The same characters in other documents are other tokens.
    let other = Documents::new(vec!["aéb".into()], "other");
    let other = tokens(&cache, &other, &bytes, &mut silent).unwrap();
    assert_eq!(all_of(&other), [97, 0xc3, 0xa9, 98, 256]);
    assert_ne!(other.content(), file.content());
}

#[test]
fn a_torn_file_is_never_read() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path());
    let texts = Documents::new(vec!["some text".into()], "one");
    let whole = all_of(&tokens(&cache, &texts, &Tokenizer::of_bytes(), &mut silent).unwrap());
    let folder = dir.path().join("tokens");
    let path = names(&folder).into_iter().find(|name| name.ends_with(".tokens")).unwrap();
    let path = folder.join(path);
    File::options().write(true).open(&path).unwrap().set_len(7).unwrap();
    let again = tokens(&cache, &texts, &Tokenizer::of_bytes(), &mut silent).unwrap();
    assert_eq!(all_of(&again), whole);
    fs::remove_file(&path).unwrap();
    assert_eq!(all_of(&tokens(&cache, &texts, &Tokenizer::of_bytes(), &mut silent).unwrap()), whole);
    assert!(names(&folder).iter().all(|name| !name.ends_with(".partial") && !name.ends_with(".progress")));
}

#[test]
fn a_text_that_changes_meanwhile_is_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path());
    let mut texts = Documents::new(vec!["some text".into()], "one");
    texts.changes = true;
    let failed = tokens(&cache, &texts, &Tokenizer::of_bytes(), &mut silent).unwrap_err();
    assert_eq!(failed.message, "these has changed while it was tokenised");
    assert!(names(&dir.path().join("tokens")).iter().all(|name| name.ends_with(".lock")));
}

#[test]
fn a_great_many_small_documents_are_tokenised() {
    let dir = tempfile::tempdir().unwrap();
    let texts = Documents::new((0..200_000).map(|i| "ab"[..i % 3].to_owned()).collect(), "one");
    let file = tokens(&Cache::at(dir.path()), &texts, &Tokenizer::of_bytes(), &mut silent).unwrap();
    // A third of them empty, with one letter and with two, each with its end.
    assert_eq!(file.len(), 200_000 + 66_667 + 2 * 66_666);
}

/// What was written of other texts that had the same digest when it began is not continued.
#[test]
fn what_was_begun_goes_on_with_the_same_texts_only() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path());
    let mut texts = Documents::new((0..12).map(|n| format!("{n} ").repeat(600_000)).collect(), "one");
    texts.fails_at = Some(11);
    tokens(&cache, &texts, &Tokenizer::of_bytes(), &mut silent).unwrap_err();
    texts.begun();
    texts.fails_at = None;
    texts.identity = "copy";
    tokens(&cache, &texts, &Tokenizer::of_bytes(), &mut silent).unwrap();
    assert_eq!(texts.begun(), [(0, 0), (0, 0)]);
}

/// More than a batch is written before it fails.
#[test]
fn what_was_begun_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path());
    let text = |n: usize| format!("{n} ").repeat(600_000);
    let mut texts = Documents::new((0..12).map(text).collect(), "one");
    let whole = tokens(&Cache::at(dir.path().join("other")), &texts, &Tokenizer::of_bytes(), &mut silent);
    let whole = all_of(&whole.unwrap());
    texts.begun();
    texts.fails_at = Some(11);
    let failed = tokens(&cache, &texts, &Tokenizer::of_bytes(), &mut silent).unwrap_err();
    assert_eq!(failed.message, "it ends here");
    // A block that was not recorded, and what is no progress at all.
    let folder = dir.path().join("tokens");
    let partial = names(&folder).into_iter().find(|name| name.ends_with(".partial")).unwrap();
    let mut partial = File::options().append(true).open(folder.join(partial)).unwrap();
    std::io::Write::write_all(&mut partial, &[1, 2, 3, 4, 5]).unwrap();
    texts.fails_at = None;
    texts.begun();
    let mut said = Vec::new();
    let resumed = tokens(&cache, &texts, &Tokenizer::of_bytes(), &mut |line| said.push(line.to_owned()));
    assert!(all_of(&resumed.unwrap()) == whole);
    let begun = texts.begun();
    assert!(begun[0] == (0, 0) && begun[1] > (5, 0), "{begun:?}");
    assert!(said[0].starts_with("these: tokenising goes on after "), "{said:?}");
    assert!(said[1].contains(" of text in 12 documents are ") && said[1].contains(" tokens, "), "{said:?}");
}

#[test]
fn two_processes_that_need_the_same_tokens_write_them_once() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path());
    let texts = Documents::new(vec!["text ".repeat(500_000)], "one");
    let lines = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let one = || {
            let mut say = |line: &str| lines.lock().unwrap().push(line.to_owned());
            tokens(&cache, &texts, &Tokenizer::of_bytes(), &mut say).unwrap().len()
        };
        let both = [scope.spawn(one), scope.spawn(one)].map(|thread| thread.join().unwrap());
        assert_eq!(both, [2_500_001; 2]);
    });
    let lines = lines.into_inner().unwrap();
    assert_eq!(lines.iter().filter(|line| line.ends_with("tokenising")).count(), 1, "{lines:?}");
}

/// The references' tokenizers.
fn references() -> Option<[(&'static str, Tokenizer); 3]> {
    let folder = shared("lm_ref/tokenizers")?;
    let read = |name: &'static str| {
        let json = fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
        (name, Tokenizer::from_json(json, None).unwrap().0)
    };
    Some(["bytelevel-bpe", "unigram", "wordpiece"].map(read))
}

#[test]
fn ids_are_those_of_the_references() {
    let Some(all) = references() else { return };
    let expected = fs::read_to_string(shared("lm_ref/tokenizers/expected.json").unwrap()).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&expected).unwrap();
    for (name, tokenizer) in all {
        let cases = expected[name].as_array().unwrap();
        assert!(cases.len() > 3);
        let mut continued = 0;
        for case in cases {
            let ids = case["ids"].as_array().unwrap();
            let ids: Vec<u32> = ids.iter().map(|id| id.as_u64().unwrap() as u32).collect();
            let text = case["text"].as_str().unwrap();
            assert_eq!(tokenizer.encode(text).unwrap(), ids, "{name}: {text:?}");
            let signed: Vec<i64> = ids.iter().map(|id| i64::from(*id)).collect();
            assert_eq!(tokenizer.decode(&signed), case["decoded"].as_str().unwrap(), "{name}");
            assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocabulary_size()));
            // What follows a prompt has the space that a beginning has not.
            let (prompt, rest) = signed.split_at(signed.len() / 2);
            let (before, all) = (tokenizer.decode(prompt), tokenizer.decode(&signed));
            if let Some(expected) = all.strip_prefix(&before).filter(|_| !before.contains('\u{fffd}')) {
                let mut stream = tokenizer.stream_after(prompt);
                let text: String = rest.iter().map(|id| stream.push(*id)).collect();
                assert_eq!(text + &stream.finish(), expected, "{name}: {before:?}");
                continued += 1;
            }
            if let Some(bytes) = tokenizer.bytes_of_tokens() {
                let of_tokens: u32 = ids.iter().map(|id| bytes[*id as usize]).sum();
                let ends = 13 * text.matches("<|endoftext|>").count();
                assert_eq!(of_tokens as usize, text.len() - ends, "{name}: {text:?}");
            }
        }
        assert!(continued > 3, "{name}: {continued}");
        assert_eq!(tokenizer.bytes_of_tokens().is_some(), name == "bytelevel-bpe");
    }
}

/// The tokens of all pieces of a text.
fn in_pieces(tokenizer: &Tokenizer, text: &str, chunk: usize) -> (Vec<u32>, usize) {
    let mut pieces = Pieces::new(tokenizer, Place::default());
    let (mut ids, mut count, mut at) = (Vec::new(), 0, 0);
    while at < text.len() {
        let end = text.floor_char_boundary((at + chunk).min(text.len()));
        let chunk = Chunk { document: 0, part: Part::Text(&text[at..end]), ends: end == text.len() };
        let each = &mut |piece: super::pieces::Piece| {
            ids.extend({
                let OwnedPart::Text(text) = &piece.part else { panic!("a piece of tokens") };
                tokenizer.encode(text).unwrap()
            });
            count += 1;
            let end = if piece.ends { Place { document: 1, offset: 0 } } else { piece.after };
            assert_eq!(piece.after, end);
            Ok(())
        };
        pieces.add(chunk, "text", each).unwrap();
        at = end;
    }
    (ids, count)
}

#[test]
fn pieces_have_the_tokens_of_the_whole() {
    let Some(all) = references() else { return };
    let Some(path) = shared("data/tinyshakespeare.txt") else { return };
    // Without line ends there are only words to cut between.
    let text = fs::read_to_string(path).unwrap().repeat(2);
    let words: String = text.chars().map(|c| if c == '\n' { ' ' } else { c }).collect();
    for (name, tokenizer) in all {
        for text in [&text, &words] {
            let whole = tokenizer.encode(text).unwrap();
            let (ids, count) = in_pieces(&tokenizer, text, 70_001);
            assert!(ids == whole, "{name}: the tokens of {count} pieces are others");
            println!("{name}: {count} pieces");
            assert!(count > 1 || name == "unigram", "{name} was not cut");
        }
    }
}

/// Nothing divides a text without spaces and line ends.
#[test]
fn what_cannot_be_cut_stays_whole_up_to_a_limit() {
    let bytes = Tokenizer::of_bytes();
    let text = "x".repeat(3 * PIECE);
    let (ids, count) = in_pieces(&bytes, &text, PIECE);
    assert_eq!((ids.len(), count), (text.len(), 1));
    let mut pieces = Pieces::new(&bytes, Place::default());
    let chunk = Chunk { document: 0, part: Part::Text(&text), ends: false };
    let failed = (0..1000).find_map(|_| pieces.add(chunk, "a.txt", &mut |_| Ok(())).err()).unwrap();
    assert!(failed.message.starts_with("a.txt: a document has more than 67.1 MB"), "{failed}");
}

#[test]
fn lines_of_json_are_documents_and_wrong_ones_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let read = |paths: Vec<PathBuf>, from: (u64, u64)| {
        let texts = TextFiles { paths, field: "text".to_owned(), named: "them".to_owned() };
        let mut all = Vec::new();
        let done = texts.read(from.0, from.1, &mut |chunk| {
            match all.last_mut() {
                Some((document, text, false)) if *document == chunk.document => {
                    *text = format!("{text}{}", chunk.text());
                    all.last_mut().unwrap().2 = chunk.ends;
                }
                _ => all.push((chunk.document, chunk.text().to_owned(), chunk.ends)),
            }
            Ok(())
        });
        done.map(|()| all)
    };
    let of = |document: u64, text: &str| (document, text.to_owned(), true);
    let a = file("a.jsonl", "{\"text\": \"one\"}\n\n{\"id\": 3, \"text\": \"é\\n\"}\n".as_bytes());
    let b = file("b.txt", "plain\n".as_bytes());
    let c = file("c.jsonl", b"{\"text\": \"last\"}");
    let all = vec![a.clone(), b.clone(), c.clone()];
    let documents = [of(0, "one"), of(1, "é\n"), of(2, "plain\n"), of(3, "last")];
    assert_eq!(read(all.clone(), (0, 0)).unwrap(), documents);
    assert_eq!(read(all.clone(), (1, 2)).unwrap(), [of(1, "\n"), of(2, "plain\n"), of(3, "last")]);
    assert_eq!(read(all.clone(), (2, 3)).unwrap(), [of(2, "in\n"), of(3, "last")]);
    assert_eq!(read(all, (4, 0)).unwrap(), []);
    for (text, why) in [
        (&b"{\"text\": \"a\"}\n{\"txt\": \"b\"}\n"[..], "line 2: it has no field `text`"),
        (b"[1]\n", "line 1: it is no JSON object"),
        (b"\n{\"text\": 3}", "line 2: `text` is no text"),
    ] {
        let failed = read(vec![file("wrong.jsonl", text)], (0, 0)).unwrap_err();
        assert!(failed.message.contains(why), "{failed}");
    }
    let failed = read(vec![b, file("wrong.txt", b"ab\xffcd")], (0, 0)).unwrap_err();
    assert!(failed.message.ends_with("wrong.txt is not UTF-8 text: invalid byte at offset 2"), "{failed}");
    // A file may end within a character, and a block too.
    let failed = read(vec![file("wrong.txt", "abé".as_bytes().split_last().unwrap().1)], (0, 0)).unwrap_err();
    assert!(failed.message.ends_with("invalid byte at offset 2"), "{failed}");
    let long = "é".repeat((1 << 19) + 3) + "x";
    let read = read(vec![file("long.txt", format!("a{long}").as_bytes())], (0, 1)).unwrap();
    assert!(read == [of(0, &long)]);
}

#[test]
fn files_of_other_programs_follow_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let small = |ids: &[u16]| ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>();
    let header = |magic: u32| [magic.to_le_bytes().to_vec(), vec![0; 1020]].concat();
    let nanogpt = file("a.bin", &small(&[1, 2, 256]));
    let empty = file("b.bin", &[]);
    let llmc = file("c.bin", &[header(20_240_520), small(&[3, 4])].concat());
    let wide = file("d.bin", &[header(20_240_801), 200_u32.to_le_bytes().to_vec()].concat());
    let bytes = Tokenizer::of_bytes();
    let open = |path: &PathBuf| TokenFile::of_another_program(path, &bytes);
    let all: TokenFiles =
        [&nanogpt, &empty, &llmc, &wide].map(|path| open(path).unwrap()).into_iter().collect();
    assert_eq!(all_of(&all), [1, 2, 256, 3, 4, 200]);
    for start in 0..6 {
        for len in 0..=6 - start {
            let mut some = vec![0; len];
            all.read(start, &mut some).unwrap();
            assert_eq!(some, all_of(&all)[start..start + len]);
        }
    }
    assert!(all.read(5, &mut [0; 2]).is_err());
    let odd = open(&file("e.bin", &[1, 2, 3])).unwrap_err().message;
    assert!(
        odd.ends_with("e.bin has 3 bytes of tokens, which is no multiple of 2, the bytes of each"),
        "{odd}"
    );
}

/// Its reader would wait for ever.
#[test]
fn a_named_pipe_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut pipe = base::testing::pipe(dir.path()).unwrap();
    for name in ["a.txt", "a.jsonl", "tokenizer.json"] {
        fs::rename(&pipe, dir.path().join(name)).unwrap();
        pipe = dir.path().join(name);
        let texts =
            TextFiles { paths: vec![pipe.clone()], field: "text".to_owned(), named: "them".to_owned() };
        let refused = texts.read(0, 0, &mut |_| Ok(())).unwrap_err().to_string();
        assert!(refused.contains("it is no regular file"), "{refused}");
    }
    let tree = spec::JobTree::parse("job.toml", &format!("[tokenizer]\npath = {pipe:?}\n"), &[]);
    let read = tree.read(|root| crate::TokenizerPlan::read(&mut root.section("tokenizer"), true));
    let refused = read.map(drop).unwrap_err().to_string();
    assert!(refused.contains("tokenizer.json: it is no regular file"), "{refused}");
}
