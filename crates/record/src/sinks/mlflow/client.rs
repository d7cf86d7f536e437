//! The HTTP client: `ureq`, which takes proxies from the environment. Certificates are judged as the system judges them.

use super::api::Failed;
use base::display;
use serde_json::Value;
use std::time::Duration;
use ureq::http::{Response, StatusCode, header};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body, Error, RequestBuilder};

/// Largest answer that is read.
const ANSWER: u64 = 16 << 20;
/// Number of characters of an error's text that are shown.
const SHOWN: usize = 300;

pub struct Client {
    agent: Agent,
    base: String,
    authorization: Option<String>,
}

impl Client {
    /// `base` is the address of the server, without a slash at its end.
    pub fn new(base: &str, authorization: Option<String>) -> Self {
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .user_agent(concat!("ddp-run/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls)
            // A POST that follows one becomes a GET, which writes nothing.
            .max_redirects(0)
            // A server may have closed a connection that was kept.
            .max_idle_connections(0)
            .build()
            .into();
        Self { agent, base: base.to_owned(), authorization }
    }

    /// Asks `path` with a query. It takes at most `limit`, with the connection and the answer.
    pub fn get(&self, path: &str, query: (&str, &str), limit: Duration) -> Result<Value, Failed> {
        let request = self.with_headers(self.agent.get(self.url(path))).query(query.0, query.1);
        let done = request.config().timeout_global(Some(limit)).build().call();
        self.answer(done, limit)
    }

    /// Sends a JSON object to `path`.
    pub fn post(&self, path: &str, body: &Value, limit: Duration) -> Result<Value, Failed> {
        let request = self.with_headers(self.agent.post(self.url(path))).content_type("application/json");
        let done = request.config().timeout_global(Some(limit)).build().send(body.to_string());
        self.answer(done, limit)
    }

    fn url(&self, path: &str) -> String {
        format!("{}/api/2.0/mlflow/{path}", self.base)
    }

    fn with_headers<T>(&self, request: RequestBuilder<T>) -> RequestBuilder<T> {
        match &self.authorization {
            Some(value) => request.header(header::AUTHORIZATION, value),
            None => request,
        }
    }

    fn answer(&self, done: Result<Response<Body>, Error>, limit: Duration) -> Result<Value, Failed> {
        let mut response = done.map_err(|e| self.failed(&e, limit))?;
        let status = response.status();
        if status.is_redirection() {
            let to =
                response.headers().get(header::LOCATION).and_then(|to| to.to_str().ok()).unwrap_or_default();
            // What follows may be a secret.
            let to = display::piece(&display::cut(to.split(['?', '#']).next().unwrap_or_default(), SHOWN));
            return Err(
                self.there(&format!("redirects to {to}; `uri` is to be the server's own address"), false)
            );
        }
        let text = response.body_mut().with_config().limit(ANSWER).read_to_string();
        let json: Option<Value> = text.as_ref().ok().and_then(|text| serde_json::from_str(text).ok());
        if status.is_success() {
            return match (text, json) {
                (Err(e), _) => Err(self.failed(&e, limit)),
                (_, Some(json)) => Ok(json),
                (_, None) => Err(self.there("does not answer with JSON; is it an MLflow server?", false)),
            };
        }
        let of = |key: &str| json.as_ref().and_then(|json| json[key].as_str()).unwrap_or_default();
        let message = display::piece(display::cut(of("message"), SHOWN).trim());
        let colon = if message.is_empty() { "" } else { ": " };
        let busy = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
        let again = status.is_server_error() || busy.contains(&status);
        let failed = self.there(&format!("answers {status}{colon}{message}"), again);
        Err(Failed { code: of("error_code").to_owned(), ..failed })
    }

    fn failed(&self, e: &Error, limit: Duration) -> Failed {
        let why = match e {
            Error::Timeout(_) => format!("does not answer within {:.1} s", limit.as_secs_f64()),
            Error::BadUri(_) => "is not an address".to_owned(),
            Error::Http(e) => format!("cannot be asked: {e}; are the credentials one line?"),
            e => format!("cannot be reached: {e}"),
        };
        self.there(&why, !matches!(e, Error::BadUri(_) | Error::Http(_)))
    }

    fn there(&self, what: &str, again: bool) -> Failed {
        Failed { why: format!("{} {what}", self.base), again, code: String::new() }
    }
}
