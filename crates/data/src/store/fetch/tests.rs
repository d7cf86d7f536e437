use super::*;
use crate::store::Digest;
use crate::testing::serve_file;
use crate::testing::server::{Answer, Server, TAG};
use collectives::testing::{HANG, Port};
use sha2::{Digest as _, Sha256};
use std::cell::RefCell;
use std::path::PathBuf;

/// A folder to download into, with what was said and how long was slept.
struct Place {
    folder: tempfile::TempDir,
    said: Vec<String>,
    slept: RefCell<Vec<u64>>,
    stall: Duration,
}

/// 300 kB that are nowhere the same.
fn file() -> Vec<u8> {
    (0..75_000u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

fn known(bytes: &[u8]) -> FileSpec {
    let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(bytes));
    FileSpec {
        size: Some(bytes.len() as u64),
        digest: Some(Digest::Sha256(digest)),
        from: "nowhere".to_owned(),
    }
}

fn unknown() -> FileSpec {
    FileSpec { size: None, digest: None, from: "nowhere".to_owned() }
}

impl Place {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            said: Vec::new(),
            slept: RefCell::default(),
            stall: HANG,
        }
    }

    fn target(&self) -> PathBuf {
        self.folder.path().join("new/f.bin")
    }

    fn part(&self) -> PathBuf {
        self.folder.path().join("new/.f.bin.part")
    }

    fn fetch(&mut self, urls: &[&str], spec: &FileSpec) -> Result<()> {
        self.fetch_checked(urls, spec, &|_| Ok(()))
    }

    fn fetch_checked(
        &mut self,
        urls: &[&str],
        spec: &FileSpec,
        check: &dyn Fn(&Path) -> Result<()>,
    ) -> Result<()> {
        let sleep = |time: Duration| self.slept.borrow_mut().push(time.as_secs());
        let fetcher = Fetcher { stall: self.stall, every: Duration::MAX, sleep: &sleep };
        let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
        let target = self.folder.path().join("new/f.bin");
        let wanted = Download { urls: &urls, target: &target, spec };
        fetch_with(&fetcher, wanted, check, &mut |line| self.said.push(line.to_owned()))
    }

    /// The target is the file, and nothing else is left.
    fn assert_is(&self, bytes: &[u8]) {
        assert!(std::fs::read(self.target()).unwrap() == bytes, "another file");
        assert_eq!(self.left(), 1);
    }

    fn left(&self) -> usize {
        std::fs::read_dir(self.folder.path().join("new")).unwrap().count()
    }
}

fn ranges(server: &Server) -> Vec<Option<String>> {
    server.requests().iter().map(|r| r.header("range").map(str::to_owned)).collect()
}

#[test]
fn a_cut_transfer_is_continued() {
    let (mut place, file) = (Place::new(), file());
    let server = Server::script(vec![
        Answer::Cut(file.clone(), 100_000),
        Answer::Cut(file.clone(), 50_000),
        Answer::File(file.clone()),
    ]);
    place.fetch(&[&server.url("f")], &known(&file)).unwrap();
    place.assert_is(&file);
    assert_eq!(ranges(&server), [None, Some("bytes=100000-".into()), Some("bytes=150000-".into())]);
    let second = &server.requests()[1];
    assert_eq!((second.header("if-range"), second.header("accept-encoding")), (Some(TAG), Some("identity")));
    // There was progress, so the pause does not grow.
    assert_eq!(*place.slept.borrow(), [1, 1]);
    assert!(place.said[0].ends_with("/f, 0.3 MB"), "{:?}", place.said);
    assert!(place.said[1].contains("trying again in 1 s"), "{:?}", place.said);
}

/// Without a digest only the entity tag says that the parts are of one version.
#[test]
fn a_file_that_changes_between_two_transfers_is_begun_anew() {
    let (mut place, file) = (Place::new(), file());
    let server = Server::script(vec![Answer::PlainCut(file.clone(), 100_000), Answer::File(file.clone())]);
    place.fetch(&[&server.url("f")], &unknown()).unwrap();
    place.assert_is(&file);
    assert_eq!(ranges(&server), [None, None]);
    let mut place = Place::new();
    let server = Server::script(vec![Answer::Cut(file.clone(), 100_000), Answer::File(file.clone())]);
    place.fetch(&[&server.url("f")], &unknown()).unwrap();
    place.assert_is(&file);
    assert_eq!(ranges(&server), [None, Some("bytes=100000-".into())]);
}

#[test]
fn a_server_without_ranges_starts_anew() {
    let (mut place, file) = (Place::new(), file());
    let server = Server::script(vec![Answer::PlainCut(file.clone(), 100_000), Answer::Plain(file.clone())]);
    place.fetch(&[&server.url("f")], &known(&file)).unwrap();
    place.assert_is(&file);
    assert_eq!(ranges(&server), [None, Some("bytes=100000-".into())]);
}

/// Each attempt is cut at the same byte: that is no progress.
#[test]
fn an_address_that_makes_no_progress_is_given_up() {
    let (mut place, file) = (Place::new(), file());
    let server = Server::script(vec![Answer::PlainCut(file.clone(), 100_000)]);
    let error = place.fetch(&[&server.url("f")], &known(&file)).unwrap_err();
    assert!(error.message.starts_with(&format!("cannot download {}: ", server.url("f"))), "{error}");
    assert_eq!(server.requests().len(), 5);
    assert_eq!(*place.slept.borrow(), [1, 2, 4, 8]);
}

/// The next process continues what the one before has left, at another address too.
#[test]
fn what_is_left_is_continued_by_the_next_start() {
    let (mut place, file) = (Place::new(), file());
    let server = Server::script(vec![Answer::Cut(file.clone(), 100_000), Answer::Status(404)]);
    let error = place.fetch(&[&server.url("f")], &known(&file)).unwrap_err();
    assert!(error.message.ends_with("the server answers 404 Not Found"), "{error}");
    assert!(!place.target().exists());
    assert_eq!(std::fs::metadata(place.part()).unwrap().len(), 100_000);
    let other = Server::script(vec![Answer::File(file.clone())]);
    place.fetch(&[&other.url("f")], &known(&file)).unwrap();
    place.assert_is(&file);
    assert_eq!(ranges(&other), [Some("bytes=100000-".into())]);
    assert!(other.requests()[0].header("if-range").is_none());
}

#[test]
fn parts_that_do_not_fit_are_downloaded_once_more_from_the_start() {
    let (mut place, file) = (Place::new(), file());
    std::fs::create_dir(place.folder.path().join("new")).unwrap();
    std::fs::write(place.part(), [7; 1000]).unwrap();
    let server = Server::script(vec![Answer::File(file.clone())]);
    place.fetch(&[&server.url("f")], &known(&file)).unwrap();
    place.assert_is(&file);
    assert_eq!(ranges(&server), [Some("bytes=1000-".into()), None]);
    // A whole wrong file is an answer.
    let mut place = Place::new();
    let wrong = vec![7; file.len()];
    let server = Server::script(vec![Answer::File(wrong)]);
    let error = place.fetch(&[&server.url("f")], &known(&file)).unwrap_err();
    assert!(error.message.contains("it is not the expected file\n"), "{error}");
    assert!(error.message.contains("/new/f.bin is damaged") && !error.message.contains(".part"), "{error}");
    assert_eq!((server.requests().len(), place.left()), (1, 0));
}

/// A partial file that is longer than the file, or as long.
#[test]
fn a_part_of_another_file_is_replaced() {
    let file = file();
    for len in [file.len(), file.len() + 1] {
        let mut place = Place::new();
        std::fs::create_dir(place.folder.path().join("new")).unwrap();
        std::fs::write(place.part(), vec![7; len]).unwrap();
        let server = Server::script(vec![Answer::File(file.clone())]);
        place.fetch(&[&server.url("f")], &known(&file)).unwrap();
        place.assert_is(&file);
        assert_eq!(ranges(&server), [None]);
    }
    // Its size is not known, and the server has nothing behind it.
    let mut place = Place::new();
    std::fs::create_dir(place.folder.path().join("new")).unwrap();
    std::fs::write(place.part(), vec![7; file.len()]).unwrap();
    let server = Server::script(vec![Answer::File(file.clone())]);
    place.fetch(&[&server.url("f")], &FileSpec { size: None, ..known(&file) }).unwrap();
    place.assert_is(&file);
    assert_eq!(ranges(&server), [Some(format!("bytes={}-", file.len())), None]);
}

#[test]
fn mirrors_are_asked_in_order() {
    let (mut place, file) = (Place::new(), file());
    let missing = Server::script(vec![Answer::Status(404)]);
    let shorter = Server::script(vec![Answer::File(file[1..].to_vec())]);
    let wrong = Server::script(vec![Answer::File(vec![7; file.len()])]);
    let urls = [missing.url("a"), shorter.url("b"), wrong.url("c")];
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let error = place.fetch(&urls, &known(&file)).unwrap_err();
    let found = data_encoding::HEXLOWER.encode(&Sha256::digest(vec![7; file.len()]));
    let (a, b, c) = (urls[0], urls[1], urls[2]);
    assert_eq!(
        error.message,
        format!(
            "cannot download f.bin\n  {a}: the server answers 404 Not Found\n  \
             {b}: its file has 299999 bytes instead of 300000\n  \
             {c}: it is not the expected file\n    {} is damaged or the wrong file\n      expected {}\n      \
             found    300000 bytes, SHA-256 {found}",
            place.target().display(),
            known(&file),
        )
    );
    assert_eq!(error.kind, base::error::ErrorKind::Spec);
    assert!(error.hint.unwrap().contains("by hand"));
    assert_eq!(place.left(), 0);
    let right = Server::script(vec![Answer::File(file.clone())]);
    place.fetch(&[a, &right.url("d")], &known(&file)).unwrap();
    place.assert_is(&file);
}

#[test]
fn a_busy_server_is_asked_again() {
    let (mut place, file) = (Place::new(), file());
    let server = Server::script(vec![
        Answer::Status(500),
        Answer::Status(503),
        Answer::Status(429),
        Answer::File(file.clone()),
    ]);
    place.fetch(&[&server.url("f")], &known(&file)).unwrap();
    place.assert_is(&file);
    assert_eq!(*place.slept.borrow(), [1, 2, 4]);
    assert!(place.said[0].ends_with("the server answers 500 Internal Server Error; trying again in 1 s"));
}

#[test]
fn a_transfer_that_stalls_is_cut_and_continued() {
    let (mut place, file) = (Place { stall: Duration::from_secs(2), ..Place::new() }, file());
    let whole = file.clone();
    // A machine that is busy may be late with the other bytes, too.
    let server = Server::start(move |request, _| match request.header("range") {
        None => Answer::Stall(whole.clone(), 100_000),
        Some(_) => Answer::File(whole.clone()),
    });
    place.fetch(&[&server.url("f")], &known(&file)).unwrap();
    place.assert_is(&file);
    let continued = ranges(&server).into_iter().flatten().next().expect("it was continued");
    let begin = continued.strip_prefix("bytes=").and_then(|range| range.strip_suffix('-'));
    let begin: usize = begin.and_then(|begin| begin.parse().ok()).expect("bytes=BEGIN-");
    assert!((1..=100_000).contains(&begin), "{continued}");
    assert!(place.said.iter().any(|line| line.contains("nothing arrived for 2 s")), "{:?}", place.said);
}

#[test]
fn redirects_are_followed_with_the_range() {
    let (mut place, file) = (Place::new(), file());
    let behind = Server::script(vec![Answer::Cut(file.clone(), 1000), Answer::File(file.clone())]);
    let server = Server::script(vec![Answer::Redirect(behind.url("there"))]);
    place.fetch(&[&server.url("f")], &known(&file)).unwrap();
    place.assert_is(&file);
    assert_eq!(ranges(&behind), [None, Some("bytes=1000-".into())]);
    let circle = Server::start(|request, _| Answer::Redirect(request.path.clone()));
    let error = Place::new().fetch(&[&circle.url("f")], &known(&file)).unwrap_err();
    assert!(error.message.contains("redirect"), "{error}");
}

/// Without a digest, only parsing shows that the file is wrong.
#[test]
fn removes_a_download_that_fails_its_check() {
    let mut place = Place::new();
    let url = serve_file(b"<html>");
    let check = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap();
        Err(Error::data(format!("{} is not a table: {text}", path.display())))
    };
    let error = place.fetch_checked(&[&url], &unknown(), &check).unwrap_err();
    let target = place.target();
    let why = format!("it is not the expected file\n{} is not a table: <html>", target.display());
    assert_eq!(error.message, format!("cannot download {url}: {why}"));
    assert_eq!(place.left(), 0);
}

#[test]
fn a_file_that_is_too_large_is_refused() {
    let mut place = Place::new();
    let spec = FileSpec { size: Some(3), ..unknown() };
    let error = place.fetch(&[&serve_file(b"abcdefghi")], &spec).unwrap_err();
    assert!(error.message.ends_with("its file has 9 bytes instead of 3"), "{error}");
    assert_eq!(place.left(), 0);
}

/// Nobody listens there: no attempt helps.
#[test]
fn a_refused_connection_is_not_tried_again() {
    let port = Port::on_loopback();
    let mut place = Place::new();
    let error = place.fetch(&[&format!("http://{}/f", port.address)], &unknown()).unwrap_err();
    assert!(error.message.contains("refused"), "{error}");
    assert!(place.slept.borrow().is_empty());
}

/// Several processes want the same file, here threads: one downloads it.
#[test]
fn one_of_several_downloads() {
    let (place, file) = (Place::new(), file());
    let server = Server::script(vec![Answer::File(file.clone())]);
    let (urls, target, spec) = (vec![server.url("f")], place.target(), known(&file));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let wanted = Download { urls: &urls, target: &target, spec: &spec };
                fetch(wanted, &|_| Ok(()), &mut |_| {}).unwrap();
            });
        }
    });
    place.assert_is(&file);
    assert_eq!(server.requests().len(), 1);
}
