//! The HTTP client: `ureq`, which follows redirects and takes proxies from the environment (ALL_PROXY, HTTPS_PROXY, HTTP_PROXY
//! and NO_PROXY).

use super::transfer::Failed;
use std::io::{self, Read};
use std::time::Duration;
use ureq::http::{HeaderMap, StatusCode, header};
use ureq::tls::{RootCerts, TlsConfig};

/// How an established connection ends early.
const CUT: [io::ErrorKind; 6] = [
    io::ErrorKind::ConnectionReset,
    io::ErrorKind::ConnectionAborted,
    io::ErrorKind::BrokenPipe,
    io::ErrorKind::UnexpectedEof,
    io::ErrorKind::TimedOut,
    io::ErrorKind::WouldBlock,
];

#[derive(Debug)]
pub(super) struct Client {
    agent: ureq::Agent,
    stall: Duration,
}

/// The part of a file that a server sends.
pub(super) struct Answer {
    /// Offset of its first byte in the file; 0 if the server sends the whole file.
    pub start: u64,
    /// Size of the whole file.
    pub total: Option<u64>,
    /// Identifies this version of the file, for `If-Range`.
    pub validator: Option<String>,
    pub body: Box<dyn Read>,
}

impl Client {
    /// A transfer of which no byte arrives for `stall` fails.
    pub fn new(stall: Duration) -> Self {
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .user_agent(concat!("ddp-run/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls)
            .timeout_connect(Some(Duration::from_secs(20)))
            .timeout_recv_response(Some(stall))
            .timeout_per_read(Some(stall))
            .timeout_per_write(Some(stall))
            // A server may have closed a connection that was kept, which would count as a failed attempt.
            .max_idle_connections(0)
            .build()
            .into();
        Self { agent, stall }
    }

    /// Requests the file from byte `from`, if it is still the version `validator`.
    pub fn get(&self, url: &str, from: u64, validator: Option<&str>) -> Result<Answer, Failed> {
        let mut request = self.agent.get(url).header(header::ACCEPT_ENCODING, "identity");
        if from > 0 {
            request = request.header(header::RANGE, format!("bytes={from}-"));
            if let Some(validator) = validator {
                request = request.header(header::IF_RANGE, validator);
            }
        }
        let response = request.call().map_err(|e| self.failed(&e))?;
        let (status, length) = (response.status(), response.body().content_length());
        let (start, total) = match status {
            StatusCode::OK => (0, length),
            StatusCode::PARTIAL_CONTENT => range(response.headers())
                .ok_or_else(|| there("the server sends a part without saying which".to_owned(), false))?,
            // There is nothing after `from`: the file is another one.
            StatusCode::RANGE_NOT_SATISFIABLE if from > 0 => return self.get(url, 0, None),
            _ => return Err(refused(status)),
        };
        let validator = validator_of(response.headers());
        Ok(Answer { start, total, validator, body: Box::new(response.into_body().into_reader()) })
    }

    /// Why a body that `get` returned ended early.
    pub fn cut(&self, e: &io::Error) -> String {
        match e.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>()) {
            Some(e) => self.in_words(e),
            None if e.kind() == io::ErrorKind::TimedOut => self.stalled(),
            None => format!("the transfer was cut: {e}"),
        }
    }

    fn failed(&self, e: &ureq::Error) -> Failed {
        use ureq::Timeout as T;
        let again = match e {
            // Not a host that is unknown or refuses the connection.
            ureq::Error::Io(e) => CUT.contains(&e.kind()),
            ureq::Error::Timeout(which) => !matches!(which, T::Resolve | T::Connect),
            ureq::Error::Protocol(_) => true,
            _ => false,
        };
        there(self.in_words(e), again)
    }

    fn in_words(&self, e: &ureq::Error) -> String {
        use ureq::Timeout as T;
        match e {
            ureq::Error::Timeout(T::Resolve | T::Connect) => "no connection within 20 s".to_owned(),
            ureq::Error::Timeout(_) => self.stalled(),
            ureq::Error::Io(e) => e.to_string(),
            ureq::Error::HostNotFound => "the host is not known".to_owned(),
            e => e.to_string(),
        }
    }

    fn stalled(&self) -> String {
        format!("nothing arrived for {} s", self.stall.as_secs_f64())
    }
}

fn there(why: String, again: bool) -> Failed {
    Failed::There { why, again }
}

fn refused(status: StatusCode) -> Failed {
    let busy = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
    let again = status.is_server_error() || busy.contains(&status);
    there(format!("the server answers {status}"), again)
}

/// Start and total of `Content-Range: bytes 5-9/10`; the total may be `*`.
fn range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let value = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
    let (range, total) = value.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.trim().parse().ok()?, total.trim().parse().ok()))
}

/// A strong entity tag, else the date of the last change.
fn validator_of(headers: &HeaderMap) -> Option<String> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    text(header::ETAG).filter(|tag| !tag.starts_with("W/")).or_else(|| text(header::LAST_MODIFIED))
}
