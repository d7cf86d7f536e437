use super::access::Access;
use super::server::{self, Site};
use super::shared::BoardShared;
use super::tests::{NOW, Runs, step};
use record::samples::append;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Anything that takes longer hangs.
const HUNG: Duration = Duration::from_secs(60);

/// A server of these runs on a port of its own, for the rest of the process.
fn served(runs: Runs) -> (SocketAddr, String, Arc<BoardShared>, Runs) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let access = Access::new(at, "127.0.0.1").unwrap();
    let token = access.token().to_owned();
    let site = Arc::new(Site { access, shared: Arc::clone(&runs.shared) });
    std::thread::spawn(move || server::run(listener, site));
    (at, token, Arc::clone(&runs.shared), runs)
}

/// A connection on which this was asked.
fn asked(at: SocketAddr, text: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(HUNG)).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    BufReader::new(stream)
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
}

/// Reads up to the line that begins so.
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

#[test]
fn the_server_answers_by_http() {
    let (at, token, _, _runs) = served(Runs::new(&["a"]));
    let whole = |text: &str| {
        let mut answer = String::new();
        asked(at, text).read_to_string(&mut answer).unwrap();
        answer
    };
    let page = whole(&request(&format!("/{token}/"))).to_lowercase();
    for part in [
        "http/1.1 200 ok\r\n",
        "\r\ncontent-security-policy: default-src 'none'",
        "\r\nreferrer-policy: no-referrer\r\n",
        "\r\nx-content-type-options: nosniff\r\n",
        "\r\ncache-control: no-store\r\n",
    ] {
        assert!(page.contains(part), "{part:?} is missing in {page}");
    }
    assert!(whole(&request("/")).starts_with("HTTP/1.1 403 "));
    let rebound = request(&format!("/{token}/")).replace("localhost", "evil.example");
    assert!(whole(&rebound).starts_with("HTTP/1.1 403 "));
    assert!(whole("no HTTP\r\n\r\n").starts_with("HTTP/1.1 400 "));
    let head = whole(&request(&format!("/{token}/")).replace("GET", "HEAD"));
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn many_pages_listen_and_leave() {
    let (at, token, shared, mut runs) = served(Runs::new(&["a"]));
    let mut pages: Vec<_> = (0..60).map(|_| asked(at, &request(&format!("/{token}/events")))).collect();
    pages.iter_mut().for_each(|page| drop(read_to(page, "event: runs")));
    assert_eq!(shared.listeners(), 60);
    append(&runs.folder("a"), &step(3));
    runs.poller.poll(NOW);
    pages.iter_mut().for_each(|page| drop(read_to(page, "event: runs")));
    drop(pages);
    let begun = Instant::now();
    while shared.listeners() > 0 {
        assert!(begun.elapsed() < HUNG, "{} pages are closed and still listen", shared.listeners());
        std::thread::park_timeout(Duration::from_millis(1));
    }
    // And the server has room for others.
    read_to(&mut asked(at, &request(&format!("/{token}/events"))), "event: runs");
}
