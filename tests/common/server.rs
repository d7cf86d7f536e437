//! A local HTTP server with faults, for tests: each request is answered as a script says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// The entity tag of every file.
pub const TAG: &str = "\"version-1\"";

/// How a request is answered.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The file or the part of it that is asked for.
    File(Vec<u8>),
    /// The whole file: this server has no parts, and no entity tag.
    Plain(Vec<u8>),
    /// As `File`, but the connection is closed after this many bytes.
    Cut(Vec<u8>, usize),
    /// As `File`, but after this many bytes nothing comes any more.
    Stall(Vec<u8>, usize),
    /// As `Plain`, but the connection is closed after this many bytes.
    PlainCut(Vec<u8>, usize),
    Status(u16),
    /// A status with JSON.
    Json(u16, String),
    /// The request is read, and nothing comes.
    Silent,
    Redirect(String),
}

/// A request, as it arrived.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// Path of the URL, with its query.
    pub path: String,
    /// Header lines, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// It came through a tunnel, to this host: the server is asked as a proxy.
    pub through: Option<String>,
    /// As long as its header says.
    pub body: Vec<u8>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// First byte of the part that is asked for; 0 if the file is another version than that of the client.
    fn first(&self) -> usize {
        let same = self.header("if-range").is_none_or(|tag| tag == TAG);
        let range = self.header("range").filter(|_| same).and_then(|r| r.strip_prefix("bytes="));
        range.and_then(|r| r.trim_end_matches('-').parse().ok()).unwrap_or(0)
    }
}

#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Answers the first request with the first answer, and so on; all further ones with the last answer.
    pub fn script(answers: Vec<Answer>) -> Self {
        Self::start(move |_, number| answers[number.min(answers.len() - 1)].clone())
    }

    /// `answer` gets the request, and how many came before it.
    pub fn start(answer: impl Fn(&Request, usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (requests.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, answer) = (seen.clone(), answer.clone());
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream);
                    let Some(request) = read(&mut reader) else { return };
                    let number = {
                        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                        seen.push(request.clone());
                        seen.len() - 1
                    };
                    // The client may have gone away.
                    let _ = respond(reader.into_inner(), &request, &answer(&request, number));
                });
            }
        });
        Self { address, requests }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Reads a request; behind a tunnel, the one in it.
fn read(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut through = None;
    loop {
        let first = line(reader)?;
        let mut words = first.split(' ').map(str::to_owned);
        let (method, path) = (words.next()?, words.next()?);
        let mut headers = Vec::new();
        loop {
            let line = line(reader)?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
        if method != "CONNECT" {
            let length = headers.iter().find(|(name, _)| name == "content-length");
            let mut body = vec![0; length.map_or(0, |(_, n)| n.parse().expect("a length"))];
            reader.read_exact(&mut body).ok()?;
            return Some(Request { method, path, headers, through, body });
        }
        through = Some(path);
        reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok()?;
    }
}

fn line(reader: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    (reader.read_line(&mut line).ok()? > 0).then(|| line.trim_end().to_owned())
}

fn respond(mut stream: TcpStream, request: &Request, answer: &Answer) -> std::io::Result<()> {
    let first = request.first();
    match answer {
        Answer::Status(code) => {
            write!(stream, "HTTP/1.1 {code} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        }
        Answer::Json(code, text) => write!(
            stream,
            "HTTP/1.1 {code} As told\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
            text.len()
        ),
        // Until the client goes away.
        Answer::Silent => stream.read(&mut [0]).map(drop),
        Answer::Redirect(to) => {
            write!(
                stream,
                "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
        }
        Answer::Plain(file) => whole(&mut stream, file, file.len()),
        Answer::PlainCut(file, n) => whole(&mut stream, file, *n),
        Answer::File(file) => part(&mut stream, file, first, usize::MAX),
        Answer::Cut(file, n) => part(&mut stream, file, first, *n),
        Answer::Stall(file, n) => {
            part(&mut stream, file, first, *n)?;
            // Until the client goes away.
            stream.read(&mut [0]).map(drop)
        }
    }
}

fn whole(stream: &mut TcpStream, file: &[u8], n: usize) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", file.len())?;
    stream.write_all(&file[..n])
}

/// At most `most` bytes of the file, from `first`.
fn part(stream: &mut TcpStream, file: &[u8], first: usize, most: usize) -> std::io::Result<()> {
    let total = file.len();
    if first > 0 && first >= total {
        return write!(
            stream,
            "HTTP/1.1 416 No\r\nContent-Range: bytes */{total}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }
    match first {
        0 => write!(stream, "HTTP/1.1 200 OK\r\n")?,
        _ => write!(
            stream,
            "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {first}-{}/{total}\r\n",
            total - 1
        )?,
    }
    let rest = &file[first..];
    write!(stream, "ETag: {TAG}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", rest.len())?;
    stream.write_all(&rest[..rest.len().min(most)])
}
