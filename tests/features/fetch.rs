//! Data sets that are downloaded, by the real binary from a local server: for a run of two ranks, by `data fetch`, through a proxy,
//! by two processes at once, and after a process that was killed.

use crate::common::server::{Answer, Server};
use crate::common::*;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// `ddp-run ARGUMENTS` in `folder`, with a cache of its own and allowed to download.
fn online(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = ddp_run();
    command.current_dir(folder).args(arguments);
    allow(&mut command, folder);
    command
}

fn allow(command: &mut Command, folder: &Path) {
    command.env_remove("DDP_RUN_OFFLINE").env("XDG_CACHE_HOME", folder.join("caches"));
    for name in ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// MNIST's four files, with few images.
fn mnist() -> Vec<(String, Vec<u8>)> {
    let head = |dims: &[u32]| -> Vec<u8> {
        let magic = 0x0800 + dims.len() as u32;
        [magic].iter().chain(dims).flat_map(|n| n.to_be_bytes()).collect()
    };
    let images = |n: u32| [head(&[n, 28, 28]), (0..n * 784).map(|i| (i / 784 * 9) as u8).collect()].concat();
    let labels = |n: u32| [head(&[n]), (0..n).map(|i| (i % 10) as u8).collect()].concat();
    let files = [
        ("train-images-idx3-ubyte", images(40)),
        ("train-labels-idx1-ubyte", labels(40)),
        ("t10k-images-idx3-ubyte", images(10)),
        ("t10k-labels-idx1-ubyte", labels(10)),
    ];
    files.map(|(name, bytes)| (format!("/set/{name}.gz"), gzip(&bytes))).into()
}

/// The first transfer is cut, and then the server is busy for `busy` attempts.
fn mnist_server(busy: usize) -> Server {
    let files = mnist();
    Server::start(move |request, number| {
        let file = files.iter().find(|(path, _)| *path == request.path).map(|(_, bytes)| bytes.clone());
        match file {
            Some(file) if number == 0 => Answer::Cut(file, 100),
            _ if (1..=busy).contains(&number) => Answer::Status(503),
            Some(file) => Answer::File(file),
            None => Answer::Status(404),
        }
    })
}

fn mnist_spec(server: &Server) -> String {
    format!(
        "name = \"digits\"\nbatch_size = 4\n[model]\nname = \"linear\"\n[dataset]\nname = \"mnist\"\nverify = false\n\
         url = \"{}\"\n[optimizer]\nname = \"sgd\"\nlr = 0.01\n[launch]\nnproc_per_node = 2\n",
        server.url("set")
    )
}

/// On a machine that has nothing: rank 0 downloads to the cache while the other rank waits, then both train. The next run finds the
/// files without a network.
#[test]
fn a_run_downloads_what_is_missing() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let server = mnist_server(3);
    let spec = write_spec(dir.path(), &mnist_spec(&server));
    // The deadline of a collective is shorter than the pauses between the attempts.
    let flags = ["--set", "distributed.timeout=10", "--set", "launch.max_restarts=0"];
    let mut first = train_command(&spec, &dir.path().join("first"), &flags);
    allow(first.current_dir(dir.path()), dir.path());
    let output = output_of(&mut first);
    assert_code(&output, 0);
    let said = stderr(&output);
    // A line with a rate is about one that takes long.
    let begun = |line: &&str| line.contains("downloading http://127.0.0.1:") && !line.contains("MB/s");
    assert_eq!(said.lines().filter(begun).count(), 5, "rank 0 says it, once: {said}");
    assert!(said.contains("the server answers 503 Service Unavailable; trying again in 8 s"), "{said}");
    assert_eq!(server.requests().len(), 4 + 4);
    assert!(dir.path().join("caches/ddp-run/mnist").is_dir() && !dir.path().join("data").exists());

    let mut second = train_command(&spec, &dir.path().join("second"), &[]);
    allow(second.current_dir(dir.path()), dir.path());
    let output = output_of(second.env("DDP_RUN_OFFLINE", "1"));
    assert_code(&output, 0);
    assert!(!stderr(&output).contains("downloading"), "{}", stderr(&output));
    assert_eq!(server.requests().len(), 4 + 4);
}

#[test]
fn a_missing_file_is_an_error_where_downloads_are_forbidden() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let server = mnist_server(0);
    let spec = write_spec(dir.path(), &mnist_spec(&server));
    let out = dir.path().join("out");
    for (offline, flags, why) in [
        ("1", &[][..], "hint: DDP_RUN_OFFLINE forbids downloads. "),
        ("0", &["--set", "dataset.download=false"], "hint: `[dataset] download` is false. "),
    ] {
        let mut command = train_command(&spec, &out, flags);
        allow(command.current_dir(dir.path()), dir.path());
        let output = output_of(command.env("DDP_RUN_OFFLINE", offline));
        assert_code(&output, 78);
        let said = stderr(&output);
        for words in [
            "MNIST: train-images-idx3-ubyte is missing",
            "looked for train-images-idx3-ubyte and train-images-idx3-ubyte.gz in",
            why,
            " downloads it on a machine with a network",
            "/set/train-images-idx3-ubyte.gz to",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
    let fetched = output_of(online(dir.path(), &["data", "fetch", "job.toml"]).env("DDP_RUN_OFFLINE", "1"));
    assert_code(&fetched, 78);
    assert!(server.requests().is_empty());
    let mut fetch = online(dir.path(), &["data", "fetch", "job.toml", "--set", "dataset.download=false"]);
    assert_code(&output_of(fetch.env("DDP_RUN_OFFLINE", "0")), 0);
    assert!(!server.requests().is_empty(), "the key is about runs");
}

const ROWS: &str = "a,y\n1,2\n2,4\n3,6\n4,8\n5,10\n6,12\n7,14\n8,16\n";

fn table_spec(url: &str, more: &str) -> String {
    format!(
        "name = \"rows\"\nbatch_size = 2\n[model]\nname = \"linear\"\n[dataset]\nname = \"csv\"\npath = \"t.csv\"\ntarget = \"y\"\n\
         url = \"{url}\"\n{more}\n[optimizer]\nname = \"sgd\"\n"
    )
}

#[test]
fn data_fetch_says_where_the_data_is() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let server = Server::script(vec![Answer::File(ROWS.into())]);
    write_spec(dir.path(), &table_spec(&server.url("t"), ""));
    let fetch =
        |more: &[&str]| output_of(&mut online(dir.path(), &[&["data", "fetch", "job.toml"], more].concat()));
    let first = fetch(&[]);
    assert_code(&first, 0);
    let path = dir.path().canonicalize().unwrap().join("t.csv");
    assert_eq!(stdout(&first), format!("data set `csv` is ready:\n  {}\n", path.display()));
    assert!(stderr(&first).contains(&format!("downloading {}", server.url("t"))), "{}", stderr(&first));
    let again = fetch(&[]);
    assert_eq!(stdout(&again), format!("data set `csv` was ready, nothing to do:\n  {}\n", path.display()));
    assert_eq!(stderr(&again), "");
    let elsewhere = fetch(&["--set", "dataset.path=sub/u.csv"]);
    assert!(stdout(&elsewhere).contains("/sub/u.csv\n"), "{}", stdout(&elsewhere));
    assert_eq!(
        (server.requests().len(), std::fs::read_to_string(dir.path().join("sub/u.csv")).unwrap().as_str()),
        (2, ROWS)
    );
    assert_code(&fetch(&["--set", "dataset.paht=x"]), 78);
    let generated = output_of(&mut online(
        dir.path(),
        &[
            "data",
            "fetch",
            "job.toml",
            "--unset",
            "dataset",
            "--set",
            "dataset.name=random",
            "--set",
            "model.name=linear",
        ],
    ));
    assert!(
        stdout(&generated).contains("`random` needs no files"),
        "{}{}",
        stdout(&generated),
        stderr(&generated)
    );
}

#[test]
fn downloads_go_through_the_proxy_of_the_environment() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let proxy = Server::script(vec![Answer::File(ROWS.into())]);
    let fetch = |url: &str, no_proxy: &str| {
        write_spec(dir.path(), &table_spec(url, ""));
        let mut command = online(dir.path(), &["data", "fetch", "job.toml"]);
        output_of(command.env("HTTP_PROXY", proxy.url("")).env("NO_PROXY", no_proxy))
    };
    assert_code(&fetch("http://data.invalid/t.csv", ""), 0);
    let through: Vec<_> =
        proxy.requests().into_iter().map(|request| (request.through, request.path)).collect();
    assert_eq!(through, [(Some("data.invalid:80".to_owned()), "/t.csv".to_owned())]);
    std::fs::remove_file(dir.path().join("t.csv")).unwrap();
    let direct = Server::script(vec![Answer::File(ROWS.into())]);
    assert_code(&fetch(&direct.url("t.csv"), "127.0.0.1"), 0);
    assert_eq!((proxy.requests().len(), direct.requests().len()), (1, 1));
}

/// Two nodes without a common file system: the first rank of each downloads.
#[test]
fn every_node_without_the_files_downloads_them() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let server = Server::script(vec![Answer::File(ROWS.into())]);
    let meet = format!("file://{}/meet", dir.path().display());
    let ranks = ["0", "1"].map(|rank| {
        let folder = dir.path().join(rank);
        std::fs::create_dir(&folder).unwrap();
        let spec = write_spec(&folder, &table_spec(&server.url("t"), ""));
        let mut command = train_command(&spec, &folder.join("out"), &["--rdzv-endpoint", &meet]);
        allow(command.current_dir(&folder), &folder);
        command.env("RANK", rank).env("LOCAL_RANK", "0").env("WORLD_SIZE", "2").env("LOCAL_WORLD_SIZE", "1");
        command.env("DDP_RUN_SECRET", "a secret of these two processes");
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    });
    for rank in ranks {
        assert_code(&finish_within(RUN_HUNG, rank), 0);
    }
    assert_eq!(server.requests().len(), 2);
    assert!(["0/t.csv", "1/t.csv"].iter().all(|path| dir.path().join(path).is_file()));
}

/// 300 kB of rows, and their digest.
fn large() -> (Vec<u8>, String) {
    use sha2::{Digest, Sha256};
    let rows: String = (0..30_000).map(|i| format!("{i},{}\n", 2 * i)).collect();
    let bytes = format!("a,y\n{rows}").into_bytes();
    let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(&bytes));
    (bytes, digest)
}

#[test]
fn two_processes_at_once_download_one_file_once() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (bytes, digest) = large();
    let server = Server::script(vec![Answer::File(bytes.clone())]);
    write_spec(dir.path(), &table_spec(&server.url("t"), &format!("sha256 = \"{digest}\"")));
    let start = || {
        let mut command = online(dir.path(), &["data", "fetch", "job.toml"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let both = [start(), start()];
    for child in both {
        assert_code(&finish(child), 0);
    }
    assert_eq!(server.requests().len(), 1);
    assert!(std::fs::read(dir.path().join("t.csv")).unwrap() == bytes);
    assert!(hidden(dir.path()).is_empty(), "{:?}", hidden(dir.path()));
}

fn hidden(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_hidden = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with('.');
    entries.filter(is_hidden).collect()
}

#[test]
fn a_killed_download_is_continued_by_the_next_process() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (bytes, digest) = large();
    let server = Server::script(vec![Answer::Stall(bytes.clone(), 100_000), Answer::File(bytes.clone())]);
    write_spec(dir.path(), &table_spec(&server.url("t"), &format!("sha256 = \"{digest}\"")));
    let mut command = online(dir.path(), &["data", "fetch", "job.toml"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let part = dir.path().join(".t.csv.part");
    let arrived = || std::fs::metadata(&part).is_ok_and(|meta| meta.len() == 100_000);
    assert!(within(HUNG, arrived), "{:?}", std::fs::metadata(&part));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!dir.path().join("t.csv").exists());
    let output = output_of(&mut online(dir.path(), &["data", "fetch", "job.toml"]));
    assert_code(&output, 0);
    assert_eq!(server.requests()[1].header("range"), Some("bytes=100000-"));
    assert!(std::fs::read(dir.path().join("t.csv")).unwrap() == bytes);
    assert!(hidden(dir.path()).is_empty(), "{:?}", hidden(dir.path()));
}
