use super::*;
use base::error::ErrorKind;
use job::plan::{Plan, WorldRequest};
use job::registry::Registry;
use spec::JobTree;

/// `ddp-run init WORDS`.
fn init(words: &[&str]) -> Result<()> {
    let command = <Args as clap::Args>::augment_args(clap::Command::new("init"));
    let words = ["init"].iter().chain(words);
    let matches = command.try_get_matches_from(words).unwrap();
    run(&<Args as clap::FromArgMatches>::from_arg_matches(&matches).unwrap(), &Registry::standard())
}

#[test]
fn the_templates_are_valid_specs() {
    for (name, text) in [("shapes", SHAPES), ("cifar10", CIFAR10), ("mnist", MNIST), ("text", TEXT)] {
        let tree = JobTree::parse(name, text, &[]);
        let plan = Plan::resolve(&tree, &Registry::standard(), WorldRequest::new(2));
        assert_eq!(plan.unwrap_or_else(|d| panic!("{d}")).world.world_size, 2);
    }
}

/// What is commented out is as valid as the rest.
#[test]
fn the_templates_are_valid_with_what_they_leave_out() {
    for (name, text) in [("shapes", SHAPES), ("cifar10", CIFAR10), ("mnist", MNIST)] {
        let shown = |line: &str| {
            let rest = line.strip_prefix("# ").filter(|rest| rest.starts_with('[') || rest.contains(" = "));
            rest.unwrap_or(line).to_owned() + "\n"
        };
        let all: String = text.lines().map(shown).collect();
        assert!(all.len() < text.len(), "{name} leaves nothing out");
        let tree = JobTree::parse(name, &all, &[]);
        Plan::resolve(&tree, &Registry::standard(), WorldRequest::new(2)).unwrap_or_else(|d| panic!("{d}"));
    }
}

#[test]
fn names_of_files_become_names_of_runs() {
    for (path, name) in
        [("a/iris.csv", "iris"), ("wine data (2).csv", "wine-data--2"), (".csv", "csv"), ("é/", "my-job")]
    {
        assert_eq!(run_name(Path::new(path)), name, "{path}");
    }
}

/// Names of columns and files are foreign: whatever they are, the spec reads them back.
#[test]
fn odd_names_are_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a 'b' \"c\".csv");
    let odd = ["", "a \"b\"", "it's", "back\\slash", "#", "two\nlines", "é = [", "\u{1b}[0m"];
    let quoted_for_csv = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let header: Vec<String> = odd.iter().map(|name| quoted_for_csv(name)).collect();
    let rows: String = (0..30)
        .map(|r: usize| (0..odd.len()).map(|c| format!("{}.{c}", r * r)).collect::<Vec<_>>().join(",") + "\n")
        .collect();
    std::fs::write(&file, header.join(",") + "\n" + &rows).unwrap();
    let spec = folder.path().join("job.toml");
    init(&["csv", file.to_str().unwrap(), spec.to_str().unwrap()]).unwrap();
    let text = std::fs::read_to_string(spec).unwrap();
    let read: toml::Table = text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"));
    let data = &read["dataset"];
    assert_eq!(data["path"].as_str(), file.to_str());
    assert_eq!(data["target"].as_str(), odd.last().copied());
    let features: Vec<&str> =
        data["features"].as_array().unwrap().iter().filter_map(|f| f.as_str()).collect();
    assert_eq!(features, odd[..odd.len() - 1]);
    assert!(text.lines().all(|line| !line.contains('\u{1b}')), "{text}");
    let tree = JobTree::parse("job.toml", &text, &[]);
    Plan::resolve(&tree, &Registry::standard(), WorldRequest::new(2)).unwrap_or_else(|d| panic!("{d}"));
}

#[test]
fn an_existing_file_is_not_overwritten() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = init(&[file.path().to_str().unwrap()]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Usage);
    assert_eq!(std::fs::metadata(file.path()).unwrap().len(), 0);
}

#[test]
fn an_unknown_template_is_named_with_the_nearest_one() {
    for words in [&["costum"][..], &["costum", "dir"]] {
        let error = init(words).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Usage);
        assert_eq!(error.message, "there is no template `costum`; did you mean `custom`?");
    }
    let error = init(&["no/where.toml", "more"]).unwrap_err();
    assert!(error.message.contains("unexpected argument `more`"), "{error}");
}

#[test]
fn a_word_that_is_no_path_of_a_spec_is_refused() {
    for words in [&["mnist", "cifar10"][..], &["cifar10", "train"]] {
        let error = init(words).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Usage);
        assert!(error.message.contains("no dot and no slash"), "{error}");
        assert!(error.hint.is_some_and(|hint| hint.contains(&format!("`{}.toml`", words[1]))));
        assert!(!Path::new(words[1]).exists());
    }
    assert_eq!(as_spec(Path::new("-x.toml")).unwrap(), Path::new("./-x.toml"));
}

#[test]
fn a_file_that_cannot_be_written_has_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().join("job.toml");
    std::fs::write(&there, "mine").unwrap();
    for (path, why) in
        [(there, "it exists already"), (folder.path().join("no/job.toml"), "its folder does not exist")]
    {
        let error = init(&["mnist", path.to_str().unwrap()]).unwrap_err();
        assert!(error.message.contains(why) && error.hint.is_some(), "{error}");
    }
}

#[test]
fn characters_that_hide_others_are_escaped() {
    let text = "a\u{202e}\"b\\";
    let written = quoted(text);
    assert_eq!(written, r#""a\u202E\"b\\""#);
    let read: toml::Table = format!("x = {written}").parse().unwrap();
    assert_eq!(read["x"].as_str(), Some(text));
    assert_eq!(foreign(text), "a\u{b7}\"b\\");
}

#[test]
fn a_text_is_taken_as_csv_takes_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let [long, short, spec] = ["long.txt", "short.txt", "job.toml"].map(|name| folder.path().join(name));
    std::fs::write(&long, "abcdefgh".repeat(500)).unwrap();
    std::fs::write(&short, "abcdefgh".repeat(10)).unwrap();
    for (file, block_size) in [(&long, 64), (&short, 2)] {
        init(&["text", file.to_str().unwrap(), spec.to_str().unwrap()]).unwrap();
        let text = std::fs::read_to_string(&spec).unwrap();
        let tree = JobTree::parse("job.toml", &text, &[]);
        let plan = Plan::resolve(&tree, &Registry::standard(), WorldRequest::new(2));
        let plan = plan.unwrap_or_else(|d| panic!("{d}"));
        let value = |key| plan.values.iter().find(|v| v.key == key).unwrap().value.clone();
        assert_eq!(value("dataset.name").as_str(), Some("text"));
        assert_eq!(value("dataset.path").as_str(), file.to_str());
        assert_eq!(value("dataset.block_size").as_integer(), Some(block_size));
        let splits = plan.dataset.source.open().unwrap();
        assert!(splits.val.is_some_and(|val| val.len() > 1));
        std::fs::remove_file(&spec).unwrap();
    }
    std::fs::write(&short, "too short").unwrap();
    let error = init(&["text", short.to_str().unwrap(), spec.to_str().unwrap()]).unwrap_err();
    assert!(error.kind == ErrorKind::Spec && error.message.ends_with("it has 9 characters"), "{error}");
    // Without a text, the only path is that of the spec.
    init(&["text", spec.to_str().unwrap()]).unwrap();
    assert!(std::fs::read_to_string(&spec).unwrap().contains("name = \"tinyshakespeare\""));
    let error = init(&["text", "none.txt", folder.path().join("b.toml").to_str().unwrap()]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Spec, "{error}");
}

#[test]
fn the_tables_of_a_folder_are_proposed_together() {
    let folder = tempfile::tempdir().unwrap();
    let rows = |from: usize| {
        (from..from + 30).map(|r| format!("{r}.5,{},{}.25\n", r % 7, r * r)).collect::<String>()
    };
    for (name, from) in [("train.csv", 0), ("val.csv", 30), ("test.csv", 60)] {
        std::fs::write(folder.path().join(name), format!("a,b,y\n{}", rows(from))).unwrap();
    }
    std::fs::write(folder.path().join("more.csv"), "").unwrap();
    let spec = folder.path().join("job.toml");
    init(&["csv", folder.path().to_str().unwrap(), spec.to_str().unwrap()]).unwrap();
    let text = std::fs::read_to_string(&spec).unwrap();
    assert!(text.contains("\n# Not used: more.csv.\n"), "{text}");
    let tree = JobTree::parse("job.toml", &text, &[]);
    let plan =
        Plan::resolve(&tree, &Registry::standard(), WorldRequest::new(2)).unwrap_or_else(|d| panic!("{d}"));
    let splits = plan.dataset.source.open().unwrap();
    let sizes =
        [Some(&splits.train), splits.val.as_ref(), splits.test.as_ref()].map(|set| set.map(|set| set.len()));
    assert_eq!(sizes, [Some(30); 3]);
    std::fs::write(folder.path().join("test.csv"), "a,b\n1,2\n").unwrap();
    std::fs::remove_file(&spec).unwrap();
    init(&["csv", folder.path().to_str().unwrap(), spec.to_str().unwrap()]).unwrap();
    let text = std::fs::read_to_string(&spec).unwrap();
    let line = format!(
        "# test.csv has no targets: `ddp-run predict RUN {}/test.csv` predicts them.",
        folder.path().display()
    );
    assert!(text.contains(&line), "{text}");
}

#[test]
fn images_with_a_table_are_recognised() {
    let folder = tempfile::tempdir().unwrap();
    for i in 0..20u8 {
        let path = folder.path().join(format!("train_images/{i}.png"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        image::GrayImage::from_pixel(16, 16, image::Luma([i])).save(path).unwrap();
    }
    let rows: String = (0..20).map(|i| format!("{i}.png,{}\n", ["cat", "dog"][i % 2])).collect();
    std::fs::write(folder.path().join("train.csv"), format!("image_id,breed\n{rows}")).unwrap();
    let spec = folder.path().join("job.toml");
    for template in ["image-folder", "csv"] {
        init(&[template, folder.path().to_str().unwrap(), spec.to_str().unwrap()]).unwrap();
        let text = std::fs::read_to_string(&spec).unwrap();
        assert!(text.contains("#   cat: 10\n#   dog: 10\n") && text.contains("channels = 1 "), "{text}");
        let tree = JobTree::parse("job.toml", &text, &[]);
        let plan = Plan::resolve(&tree, &Registry::standard(), WorldRequest::new(2));
        let plan = plan.unwrap_or_else(|d| panic!("{d}"));
        let splits = plan.dataset.source.open().unwrap();
        assert_eq!((splits.train.len(), splits.val.map(|val| val.len())), (16, Some(4)));
        std::fs::remove_file(&spec).unwrap();
    }
}
