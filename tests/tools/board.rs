//! `ddp-run board` with the real binary: over sockets, and in a headless Chromium (skipped with a printed line where none is
//! installed; `REPORT_SCREENSHOTS=DIR cargo test --test tools board` writes what it looks like).

use crate::common::browser::Browser;
use crate::common::*;
use record::samples::{self, append, line};
use record::{EpochEvent, Event};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

const WINDOW: [u32; 2] = [1200, 1000];

/// A board that is being served; it ends with this value.
struct Board {
    process: Child,
    /// With the token and a slash.
    address: String,
}

impl Board {
    fn of(folder: &Path) -> Self {
        // Shells start what runs behind them without SIGINT.
        let mut command = program(Path::new("env"));
        command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_ddp-run"), "board"]).arg(folder);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the binary starts");
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("http://127.0.0.1:") && line.ends_with("/\n"), "{line:?}");
        Self { process, address: line.trim_end().to_owned() }
    }

    /// Host with port, and the path with the token.
    fn parts(&self) -> (&str, &str) {
        let rest = self.address.strip_prefix("http://").unwrap();
        rest.split_at(rest.find('/').unwrap())
    }

    /// A connection on which this path behind the token was asked for.
    fn asked(&self, path: &str) -> BufReader<TcpStream> {
        let (host, token) = self.parts();
        asked(host, &format!("GET {token}{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
    }

    /// Status and body of a whole answer.
    fn get(&self, path: &str) -> (String, String) {
        whole(self.asked(path))
    }

    fn table(&self) -> Value {
        parse_json(self.get("runs.json").1)
    }

    /// The row of a run, once there is one.
    fn row(&self, name: &str) -> Value {
        let mut found = Value::Null;
        wait_for("the run to be listed", HUNG, || {
            let table = self.table();
            let rows = table["rows"].as_array().unwrap();
            found = rows
                .iter()
                .find(|row| row["cells"][0].as_str().unwrap().ends_with(name))
                .cloned()
                .unwrap_or_default();
            found.is_object()
        });
        found
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn asked(host: &str, text: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(HUNG)).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    BufReader::new(stream)
}

fn whole(mut reader: BufReader<TcpStream>) -> (String, String) {
    let mut all = String::new();
    reader.read_to_string(&mut all).unwrap();
    let (head, body) = all.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {all}"));
    (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
}

/// Reads a stream up to the line that begins so.
fn read_to(reader: &mut impl BufRead, start: &str) -> String {
    let mut all = String::new();
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0, "no {start} in {all}");
        all.push_str(&line);
        if line.starts_with(start) {
            return all;
        }
    }
}

fn step(step: u64) -> String {
    line(&samples::step(step, 2.0 / step as f64))
}

fn epoch(number: u64, step: u64) -> String {
    line(&Event::Epoch(EpochEvent { step, ..samples::epoch(number, 0.75) }))
}

/// The folder of a run with these steps.
fn made_up(root: &Path, name: &str, steps: u64) -> PathBuf {
    let folder = root.join(name);
    fs::create_dir(&folder).unwrap();
    append(&folder, &(1..=steps).map(step).collect::<String>());
    folder
}

/// As a resume at `at` leaves the metrics.
fn resumed(folder: &Path, at: u64) {
    let next = folder.join("metrics.jsonl.partial");
    fs::write(&next, (1..=at).map(step).collect::<String>()).unwrap();
    fs::rename(next, folder.join("metrics.jsonl")).unwrap();
}

#[test]
fn a_board_is_asked_by_who_knows_its_address() {
    let _alone = alone();
    let root = tempfile::tempdir().unwrap();
    made_up(root.path(), "a", 3);
    let board = Board::of(root.path());
    assert!(board.get("").1.contains("<h1>Runs</h1>"));
    assert_eq!(board.row("a")["state"], "failed", "nobody holds its lock, and it has no end");
    let (host, token) = board.parts();
    let status = |path: &str, named: &str| {
        whole(asked(host, &format!("GET {path} HTTP/1.1\r\nHost: {named}\r\nConnection: close\r\n\r\n"))).0
    };
    assert_eq!(status(token, "localhost:9999"), "200", "through a tunnel");
    assert_eq!(status(token, "evil.example"), "403");
    assert_eq!(status("/", host), "403");
    assert_eq!(status("/00000000000000000000000000000000/", host), "403");
    assert_eq!(status(&format!("{token}../Cargo.toml"), host), "404");
}

#[test]
fn a_board_tells_what_a_run_writes() {
    let _alone = alone();
    let root = tempfile::tempdir().unwrap();
    let folder = made_up(root.path(), "a", 3);
    let board = Board::of(root.path());
    let mut table = board.asked("events");
    read_to(&mut table, "event: runs");
    let id = board.row("a")["id"].as_str().unwrap().to_owned();
    let page = board.get(&format!("run/{id}/")).1;
    let (_, from) = page.split_once("\"from\":\"").unwrap();
    let from = from.split('"').next().unwrap();
    let mut events = board.asked(&format!("run/{id}/events?from={from}"));
    read_to(&mut events, "data: failed");
    append(&folder, &step(4));
    read_to(&mut events, "event: news");
    let news = read_to(&mut events, "data: ");
    assert!(news.contains("\"step\":[4.0]"), "{news}");
    read_to(&mut table, "event: runs");
    let other = made_up(root.path(), "b", 1);
    board.row("b");
    fs::remove_dir_all(other).unwrap();
    wait_for("the run to be gone", HUNG, || board.table()["total"] == 1);
    resumed(&folder, 2);
    read_to(&mut events, "event: reload");
}

#[test]
fn a_signal_ends_a_board_at_once() {
    let _alone = alone();
    let root = tempfile::tempdir().unwrap();
    made_up(root.path(), "a", 3);
    for signal in [Signal::INT, Signal::TERM] {
        let mut board = Board::of(root.path());
        let mut stream = board.asked("events");
        read_to(&mut stream, "event: runs");
        // It follows the address, by a thread of its own.
        let mut hint = BufReader::new(board.process.stderr.take().unwrap());
        let mut said = read_to(&mut hint, "from another machine");
        kill(board.process.id(), signal);
        let mut status = None;
        wait_for("the board to end", HUNG, || {
            status = board.process.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(status.unwrap().signal(), Some(signal.as_raw()));
        hint.read_to_string(&mut said).unwrap();
        let port = board.parts().0.rsplit_once(':').unwrap().1;
        assert!(said.contains(&format!("ssh -L {port}:127.0.0.1:{port} ")), "{said}");
        assert!(
            !said.contains(board.parts().1.trim_matches('/')),
            "the token is only in the address: {said}"
        );
    }
}

#[test]
fn a_board_says_why_it_cannot_be_served() {
    let _alone = alone();
    let root = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = output_of(ddp_run().arg("board").arg(root.path()).args(["--port", &port]));
    assert_code(&output, 2);
    assert!(
        stderr(&output).contains(&format!("cannot listen on 127.0.0.1, port {port}")),
        "{}",
        stderr(&output)
    );
    let output = finish(
        ddp_run()
            .arg("board")
            .arg(root.path().join("none"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    assert_code(&output, 74);
}

/// Waits until a JavaScript expression is true.
fn until(browser: &mut Browser, expression: &str) {
    wait_for(expression, HUNG, || browser.holds(expression));
}

#[test]
fn the_table_in_a_browser() {
    let _alone = alone();
    let Some(mut browser) = Browser::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let first = made_up(root.path(), "first", 3);
    made_up(root.path(), "second", 8);
    let board = Board::of(root.path());
    for (width, dark) in [(400, true), (1280, false)] {
        browser.visit(&board.address, [width, 1000], dark);
        until(&mut browser, "document.querySelectorAll('#table tbody tr').length === 2");
        let sizes = browser.eval("(e => e.scrollWidth <= e.clientWidth)(document.documentElement)");
        assert_eq!(sizes, true, "{width} px: it scrolls sideways");
        let hidden = "[...document.querySelectorAll('#filter, #compare, #table button, #table input, #table a, #table td:not(:empty)')]\
                      .filter(e => (r => r.width === 0 || r.left < 0 || r.right > innerWidth)(e.getBoundingClientRect())).map(e => e.outerHTML)";
        assert_eq!(browser.eval(hidden), serde_json::json!([]), "{width} px: what can't be seen or reached");
        browser.screenshot(&format!("board-{width}"));
    }
    // Sorted by steps, the largest first.
    let names =
        "[...document.querySelectorAll('#table tbody a')].map(a => a.textContent.split('/').pop()).join()";
    let head = "[...document.querySelectorAll('#table thead button')].find(b => b.textContent.startsWith('STEPS')).click()";
    browser.eval(head);
    until(&mut browser, &format!("{names} === 'second,first'"));
    // The lines stay the same elements, so that a click is not lost on one that is being replaced.
    browser.eval("document.querySelectorAll('#table tbody tr').forEach(row => { row.known = true; })");
    append(&first, &(4..=20).map(step).collect::<String>());
    until(&mut browser, &format!("{names} === 'first,second'"));
    let known = "[...document.querySelectorAll('#table tbody tr')].every(row => row.known)";
    assert_eq!(browser.eval(known), true);
    // A link in a line that moves keeps the focus.
    browser.eval("document.querySelectorAll('#table tbody a')[1].focus()");
    append(&root.path().join("second"), &(9..=40).map(step).collect::<String>());
    until(&mut browser, &format!("{names} === 'second,first'"));
    assert_eq!(browser.eval("document.activeElement.textContent.split('/').pop()"), "second");
    append(&first, &(21..=60).map(step).collect::<String>());
    until(&mut browser, &format!("{names} === 'first,second'"));
    until(&mut browser, "document.querySelector('#table tbody tr').textContent.includes('60')");
    let filter = |text: &str| {
        format!(
            "(f => {{ f.value = '{text}'; f.dispatchEvent(new Event('input')); }})(document.getElementById('filter'))"
        )
    };
    browser.eval(&filter("step<50"));
    until(&mut browser, &format!("{names} === 'second'"));
    assert_eq!(browser.complaints, [""; 0]);
    browser.eval(&filter("step"));
    until(&mut browser, "document.getElementById('warnings').textContent.includes('there is no comparison')");
    browser.eval(&filter(""));
    until(&mut browser, &format!("{names} === 'first,second'"));
    browser.eval("document.querySelectorAll('#table tbody input').forEach(box => box.click())");
    browser.eval("document.getElementById('compare').click()");
    until(&mut browser, "document.querySelectorAll('.runs button').length === 2");
    until(&mut browser, "document.getElementById('connection')?.textContent === 'live'");
}

#[test]
fn the_page_of_a_run_that_goes_on() {
    let _alone = alone();
    let Some(mut browser) = Browser::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("a");
    fs::create_dir(&folder).unwrap();
    append(&folder, "");
    let board = Board::of(root.path());
    let id = board.row("a")["id"].as_str().unwrap().to_owned();
    browser.visit(&format!("{}run/{id}/", board.address), WINDOW, false);
    until(&mut browser, "document.getElementById('connection').textContent === 'live'");
    assert_eq!(browser.eval("document.querySelectorAll('figure.chart').length"), 0, "nothing is trained yet");
    append(&folder, &(1..=40).map(step).collect::<String>());
    until(&mut browser, "document.querySelectorAll('figure.chart').length === 4");
    until(&mut browser, "document.querySelector('.tiles').textContent.includes('steps40')");
    // What one has chosen stays when more comes.
    browser.eval("(s => { s.value = 0.3; s.dispatchEvent(new Event('input')); })(document.querySelector('.slider input'))");
    browser.eval("document.querySelector('figure.chart > svg').focus()");
    (0..2).for_each(|_| browser.press("+"));
    let labels = "[...document.querySelectorAll('figure.chart > svg')[0].querySelectorAll(':scope > text[text-anchor=middle]')].map(t => t.textContent).join()";
    let zoomed = browser.eval(labels);
    append(&folder, &((41..=50).map(step).collect::<String>() + &epoch(0, 50)));
    until(
        &mut browser,
        "[...document.querySelectorAll('.title')].map(t => t.textContent).slice(0, 2).join() === 'Loss,Accuracy'",
    );
    until(&mut browser, "document.getElementById('rest').textContent.includes('Epochs')");
    assert_eq!(browser.eval(labels), zoomed);
    assert_eq!(browser.eval("document.querySelector('.slider output').textContent"), "0.30");
    assert_eq!(
        browser.eval("document.querySelectorAll('.choice input').length"),
        3,
        "epochs and times are known now"
    );
    browser.screenshot("board-run");
    until(&mut browser, "document.getElementById('states').textContent === 'failed'");
    // Parts that have not changed stay the same elements: those above the table of epochs, and those below it.
    browser.eval("document.querySelector('#rest > section').known = true");
    fs::write(folder.join("job.toml"), "name = \"a\"\n").unwrap();
    fs::create_dir(folder.join("evaluations")).unwrap();
    fs::write(folder.join("evaluations/step-00000050.json"), "damaged").unwrap();
    until(&mut browser, "document.getElementById('rest').textContent.includes('Job')");
    assert_eq!(browser.eval("document.querySelector('#rest > section').known"), true);
    // A page that loads itself again keeps the view, too.
    resumed(&folder, 45);
    until(&mut browser, "document.querySelector('.tiles')?.textContent.includes('steps45') ?? false");
    until(&mut browser, "document.querySelector('.slider output')?.textContent === '0.30'");
    assert_eq!(browser.eval(labels), zoomed);
    append(&folder, &step(46));
    until(&mut browser, "document.querySelector('.tiles').textContent.includes('steps46')");
    assert_eq!(browser.complaints, [""; 0]);
}
