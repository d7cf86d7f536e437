use super::access::Access;
use super::poll::Poller;
use super::routes::{Answer, Reply, Request, answer};
use super::shared::{BoardShared, Id, KEPT};
use super::stream::{Next, Stream, event};
use base::files::LockedFile;
use record::samples::{self, append, line};
use serde_json::Value;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(super) const NOW: Duration = Duration::ZERO;

fn none(_: &str) -> Option<bool> {
    None
}

pub(super) fn step(step: u64) -> String {
    line(&samples::step(step, 1.5))
}

/// A folder of runs, and a board of it that polls on request.
pub(super) struct Runs {
    dir: tempfile::TempDir,
    access: Access,
    pub poller: Poller<'static>,
    pub shared: Arc<BoardShared>,
}

impl Runs {
    pub fn new(names: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            fs::create_dir(dir.path().join(name)).unwrap();
            append(&dir.path().join(name), &(step(1) + &step(2)));
        }
        let mut poller = Poller::new(&[dir.path().to_owned()], false, &none);
        poller.poll(NOW);
        let access = Access::new("127.0.0.1:80".parse().unwrap(), "127.0.0.1").unwrap();
        Self { shared: poller.shared(), dir, access, poller }
    }

    pub fn folder(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn id(&self, name: &str) -> Id {
        Id::new(&self.folder(name))
    }

    /// The answer to an address, with what follows `?`.
    fn asked(&self, method: &str, host: &str, address: &str) -> Answer {
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        let request = Request {
            method: method.to_owned(),
            hosts: vec![host.to_owned()],
            path: path.to_owned(),
            query: query.to_owned(),
            last: None,
        };
        answer(&request, &self.access, &self.shared)
    }

    /// The answer to a path behind the token.
    fn get(&self, path: &str) -> Answer {
        self.asked("GET", "localhost:9000", &format!("/{}/{path}", self.access.token()))
    }

    fn reply(&self, path: &str) -> Reply {
        whole(self.get(path))
    }

    fn table(&self, query: &str) -> Value {
        let reply = self.reply(&format!("runs.json?{query}"));
        assert_eq!(reply.status, 200, "{}", reply.text);
        serde_json::from_str(&reply.text).unwrap()
    }

    /// The stream of a run's page that was just loaded.
    fn stream(&self, name: &str) -> Stream {
        let id = self.id(name);
        let page = self.reply(&format!("run/{}/", id.as_str())).text;
        let (_, data) = page.split_once("id=\"live\">").unwrap();
        let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
        let address = format!(
            "run/{}/{}?from={}",
            id.as_str(),
            data["events"].as_str().unwrap(),
            data["from"].as_str().unwrap()
        );
        match self.get(&address) {
            Answer::Events(stream) => stream,
            Answer::Whole(reply) => panic!("{}", reply.text),
        }
    }

    fn next(&self, stream: &mut Stream) -> Next {
        stream.next(&self.shared)
    }
}

fn whole(answer: Answer) -> Reply {
    match answer {
        Answer::Whole(reply) => reply,
        Answer::Events(_) => panic!("a stream"),
    }
}

/// The labels in a table.
fn names(table: &Value) -> Vec<&str> {
    table["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["cells"][0].as_str().unwrap().rsplit('/').next().unwrap())
        .collect()
}

#[test]
fn only_who_may_ask_is_answered() {
    let runs = Runs::new(&["a"]);
    let own = format!("/{}/", runs.access.token());
    let reply = |method: &str, host: &str, path: &str| whole(runs.asked(method, host, path));
    let status = |method: &str, host: &str, path: &str| reply(method, host, path).status;
    assert_eq!(status("GET", "localhost:80", &own), 200);
    assert_eq!(status("HEAD", "127.0.0.1:7", &own), 200);
    assert_eq!(status("GET", "evil.example", &own), 403);
    assert_eq!(status("GET", "localhost", "/"), 403);
    assert_eq!(status("GET", "localhost", "/runs.json"), 403);
    assert_eq!(status("POST", "localhost", &own), 405);
    assert_eq!(status("POST", "localhost", "/"), 403, "a stranger learns nothing");
    for path in [
        "nothing",
        "run/",
        "run/../",
        "run/0000000000000000/",
        "run/xyz/events",
        "runs.json/",
        "../runs.json",
    ] {
        assert_eq!(status("GET", "localhost", &(own.clone() + path)), 404, "{path}");
    }
    let Reply { status, text, .. } = reply("GET", "localhost", "/0123/runs.json");
    assert!(status == 403 && !text.contains(runs.access.token()), "{text}");
}

#[test]
fn pages_load_nothing_from_elsewhere_and_do_not_tell_the_token() {
    let runs = Runs::new(&["a", "b"]);
    let [a, b] = ["a", "b"].map(|name| runs.id(name).as_str().to_owned());
    for path in [String::new(), format!("run/{a}/"), format!("compare/?run={a}&run={b}")] {
        let reply = runs.reply(&path);
        assert_eq!((reply.status, reply.kind), (200, "text/html; charset=utf-8"), "{path}");
        for part in
            ["default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "script-src 'sha256-"]
        {
            assert!(reply.policy.contains(part), "{path}: {part} is missing in {}", reply.policy);
        }
        assert!(!reply.text.contains(runs.access.token()), "{path}");
        for outside in ["http://", "https://", "src=", "innerHTML"] {
            assert!(!reply.text.contains(outside), "{path}: {outside}");
        }
        let scripts = reply.text.matches("<script>").count();
        assert_eq!(reply.policy.matches("'sha256-").count(), scripts, "{path}: a hash for each script");
    }
    let table = runs.reply("").text;
    for part in ["@media (max-width: 700px)", "content: attr(data-head)", "\"data-head\": head"] {
        assert!(table.contains(part), "the cards of a narrow screen: {part}");
    }
    assert_eq!(runs.reply(&format!("compare/?run={a}&run={a}")).status, 400, "one run, twice");
    assert_eq!(runs.reply(&format!("compare/?run={a}&run=0000000000000000")).status, 404);
}

#[test]
fn the_table_is_filtered_and_sorted_as_lists_are() {
    let mut runs = Runs::new(&["a", "b", "c"]);
    append(&runs.folder("b"), &step(7));
    runs.poller.poll(NOW);
    assert_eq!(names(&runs.table("sort=-step&sort=x"))[0], "b");
    assert_eq!(names(&runs.table("sort=folder")), ["a", "b", "c"]);
    let found = runs.table("sort=folder&filter=step%3C7");
    assert_eq!(names(&found), ["a", "c"]);
    assert_eq!((&found["total"], found["ids"].as_array().unwrap().len()), (&3.into(), 3));
    let steps = |column: &&Value| column["key"] == "step" && column["right"] == true;
    assert!(found["columns"].as_array().unwrap().iter().any(|column| steps(&column)), "{found}");
    assert!(runs.table("filter=setp%3C7")["warnings"][0].as_str().unwrap().contains("did you mean `step`?"));
    let wrong = runs.reply("runs.json?filter=step");
    assert!(wrong.status == 400 && wrong.text.contains("comparison"), "{}", wrong.text);
}

#[test]
fn runs_that_begin_and_end_while_it_serves_are_seen() {
    let mut runs = Runs::new(&["a"]);
    let mut table = Stream::of_table();
    assert!(matches!(runs.next(&mut table), Next::Send(text) if text.starts_with("event: runs\n")));
    runs.poller.poll(NOW);
    assert_eq!(runs.next(&mut table), Next::Nothing, "nothing has changed");
    fs::create_dir(runs.folder("b")).unwrap();
    append(&runs.folder("b"), &step(1));
    runs.poller.poll(NOW);
    assert!(matches!(runs.next(&mut table), Next::Send(_)));
    assert_eq!(names(&runs.table("sort=folder")), ["a", "b"]);
    append(&runs.folder("b"), &line(&samples::end(1, 0)));
    runs.poller.poll(NOW);
    assert_eq!(runs.table("filter=state%3Ddone")["rows"][0]["kind"], "good");
    // As a later start archives it.
    fs::rename(runs.folder("a"), runs.folder("b.1")).unwrap();
    runs.poller.poll(NOW);
    assert!(matches!(runs.next(&mut table), Next::Send(_)));
    assert!(!names(&runs.table("")).contains(&"a"));
    fs::remove_dir_all(runs.dir.path()).unwrap();
    runs.poller.poll(NOW);
    assert!(runs.table("")["warnings"][0].as_str().unwrap().contains("cannot read"), "{}", runs.table(""));
}

#[test]
fn a_page_is_told_what_its_run_writes() {
    let mut runs = Runs::new(&["a"]);
    let mut stream = runs.stream("a");
    assert_eq!(runs.next(&mut stream), Next::Send(event("states", "", "failed")));
    append(&runs.folder("a"), &step(3)[..20]);
    runs.poller.poll(NOW);
    assert_eq!(runs.next(&mut stream), Next::Nothing, "the line is torn");
    append(&runs.folder("a"), &step(3)[20..]);
    runs.poller.poll(NOW);
    let Next::Send(text) = runs.next(&mut stream) else { panic!("there is news") };
    assert!(text.starts_with("event: news\nid: ") && text.ends_with("\n\n"), "{text}");
    assert!(text.contains("\"step\":[3.0]"), "{text}");
    assert_eq!(runs.next(&mut stream), Next::Nothing);
}

#[test]
fn a_page_is_loaded_again_after_a_resume_and_told_of_the_end() {
    let mut runs = Runs::new(&["a"]);
    let mut stream = runs.stream("a");
    let next = runs.dir.path().join("next");
    fs::write(&next, step(1)).unwrap();
    fs::rename(&next, runs.folder("a").join("metrics.jsonl")).unwrap();
    runs.poller.poll(NOW);
    assert_eq!(runs.next(&mut stream), Next::Last(event("reload", "", "")));
    let mut stream = runs.stream("a");
    assert_eq!(runs.next(&mut stream), Next::Send(event("states", "", "failed")));
    // As a start that begins anew archives it.
    fs::rename(runs.folder("a"), runs.folder("a.1")).unwrap();
    runs.poller.poll(NOW);
    assert_eq!(runs.next(&mut stream), Next::Send(event("gone", "", "the folder of the run is gone")));
    assert_eq!(runs.next(&mut stream), Next::Nothing);
    fs::create_dir(runs.folder("a")).unwrap();
    append(&runs.folder("a"), &step(1));
    runs.poller.poll(NOW);
    assert_eq!(runs.next(&mut stream), Next::Last(event("reload", "", "")));
}

#[test]
fn a_page_is_told_that_its_run_was_killed() {
    let mut runs = Runs::new(&["a"]);
    let lock = LockedFile(File::create(runs.folder("a").join(".lock")).unwrap());
    lock.lock().unwrap();
    runs.poller.poll(NOW);
    let mut stream = runs.stream("a");
    assert_eq!(runs.next(&mut stream), Next::Send(event("states", "", "running")));
    append(&runs.folder("a"), &step(3));
    runs.poller.poll(NOW);
    assert!(matches!(runs.next(&mut stream), Next::Send(text) if text.starts_with("event: news\n")));
    drop(lock);
    runs.poller.poll(NOW);
    assert_eq!(runs.next(&mut stream), Next::Send(event("states", "", "failed")), "it wrote no end");
}

#[test]
fn a_folder_that_is_gone_hides_no_other() {
    let [mut a, b] = ["a", "b"].map(|name| Runs::new(&[name]));
    a.poller = Poller::new(&[a.dir.path().to_owned(), b.dir.path().to_owned()], false, &none);
    a.shared = a.poller.shared();
    a.poller.poll(NOW);
    assert_eq!(names(&a.table("sort=folder")).len(), 2);
    fs::remove_dir_all(b.dir.path()).unwrap();
    append(&a.folder("a"), &step(7));
    a.poller.poll(NOW);
    let table = a.table("filter=step%3D7");
    assert_eq!(names(&table), ["a"]);
    assert!(table["warnings"][0].as_str().unwrap().contains("cannot read"), "{table}");
    fs::create_dir(b.dir.path()).unwrap();
    a.poller.poll(NOW);
    assert_eq!(a.table("")["warnings"], serde_json::json!([]));
}

#[test]
fn a_page_is_found_without_its_last_slash() {
    let runs = Runs::new(&["a", "b"]);
    let [a, b] = ["a", "b"].map(|name| runs.id(name).as_str().to_owned());
    let elsewhere = |path: &str| {
        let address = format!("/{}{path}", runs.access.token());
        let reply = whole(runs.asked("GET", "localhost", &address));
        (reply.status, reply.elsewhere)
    };
    assert_eq!(elsewhere(""), (308, Some(format!("{}/", runs.access.token()))));
    assert_eq!(elsewhere(&format!("/run/{a}")), (308, Some(format!("{a}/"))));
    assert_eq!(elsewhere("/run/javascript:alert(1)").0, 404);
    let both = format!("run={a}&run={b}");
    assert_eq!(elsewhere(&format!("/compare?{both}")), (308, Some(format!("compare/?{both}"))));
    assert_eq!(elsewhere(&format!("/compare/?{both}")), (200, None));
}

#[test]
fn a_run_whose_page_is_closed_is_let_go() {
    let mut runs = Runs::new(&["a", "b"]);
    let mut stream = runs.stream("a");
    runs.next(&mut stream);
    runs.poller.poll(NOW);
    runs.poller.poll(2 * KEPT);
    assert_eq!(runs.shared.kept(), 1, "its page is open");
    drop(stream);
    runs.poller.poll(2 * KEPT);
    assert_eq!(runs.shared.kept(), 1, "it may be looked at again");
    runs.poller.poll(3 * KEPT);
    assert_eq!(runs.shared.kept(), 0);
}

#[test]
fn events_are_framed() {
    assert_eq!(event("news", "1.2", "{}"), "event: news\nid: 1.2\ndata: {}\n\n");
    assert_eq!(event("x", "", "a\nb"), "event: x\ndata: a\ndata: b\n\n");
}
