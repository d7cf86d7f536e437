//! The addresses of the board.

use super::access::{Access, Refusal};
use super::page::{Html, runs_page, table_json, table_page};
use super::shared::{BoardShared, Id};
use super::stream::Stream;
use crate::runs::{Filter, Listing, SortBy};
use percent_encoding::percent_decode_str;
use std::str::FromStr;

/// The largest number of runs in a comparison; `board.js` has the same number.
const MOST: usize = 16;

/// The parts of a request that matter.
#[derive(Clone, Debug, Default)]
pub(super) struct Request {
    pub method: String,
    /// All values of the header.
    pub hosts: Vec<String>,
    pub path: String,
    pub query: String,
    /// `Last-Event-ID`: where an interrupted stream continues.
    pub last: Option<String>,
}

/// A whole answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub status: u16,
    /// The media type.
    pub kind: &'static str,
    pub text: String,
    /// The content-security policy.
    pub policy: String,
    /// The address to redirect to.
    pub elsewhere: Option<String>,
}

pub(super) enum Answer {
    Whole(Reply),
    Events(Stream),
}

/// For replies that are not pages.
const NO_PAGE: &str = "default-src 'none'; frame-ancestors 'none'";

impl Reply {
    pub fn text(status: u16, text: &str) -> Self {
        let text = format!("{text}\n");
        Self { status, kind: "text/plain; charset=utf-8", text, policy: NO_PAGE.to_owned(), elsewhere: None }
    }

    fn html(html: Html) -> Self {
        let Html { text, policy } = html;
        Self { status: 200, kind: "text/html; charset=utf-8", text, policy, elsewhere: None }
    }

    /// For an address that lacks its last slash: what a page asks for is beside it.
    fn slash_added(request: &Request) -> Self {
        let last = request.path.rsplit('/').next().unwrap_or_default();
        let query = if request.query.is_empty() { "" } else { "?" };
        let elsewhere = Some(format!("{last}/{query}{}", request.query));
        Self { elsewhere, ..Self::text(308, "The address of a page ends with a slash.") }
    }

    fn not_found() -> Self {
        Self::text(404, "There is nothing here. The run may have been removed.")
    }
}

/// Answers a request; without access, the answer contains nothing about any run.
pub(super) fn answer(request: &Request, access: &Access, shared: &BoardShared) -> Answer {
    whole_or_events(request, access, shared).unwrap_or_else(Answer::Whole)
}

/// `Err` is a refusal, which is an answer as well.
fn whole_or_events(request: &Request, access: &Access, shared: &BoardShared) -> Result<Answer, Reply> {
    let hosts: Vec<&str> = request.hosts.iter().map(String::as_str).collect();
    let path = access.check(&hosts, &request.path).map_err(|refusal| match refusal {
        Refusal::Host => {
            Reply::text(403, "The board is asked as localhost, or by the address that it listens on.")
        }
        Refusal::Token => {
            Reply::text(403, "The address lacks the token: `ddp-run board` has printed the whole address.")
        }
    })?;
    if !["GET", "HEAD"].contains(&request.method.as_str()) {
        return Err(Reply::text(405, "The board is only read."));
    }
    let query = Query::parse(&request.query);
    let whole = |reply: Reply| Ok(Answer::Whole(reply));
    match path.split('/').collect::<Vec<_>>()[..] {
        [""] if request.path.ends_with('/') => whole(Reply::html(table_page())),
        ["run", id] => known(id).and_then(|_| whole(Reply::slash_added(request))),
        [""] | ["compare"] => whole(Reply::slash_added(request)),
        ["runs.json"] => whole(table(&query, shared)),
        ["events"] => Ok(Answer::Events(Stream::of_table())),
        ["run", id, ""] => whole(page(&[known(id)?], shared)),
        ["run", id, "events"] => Ok(events(vec![known(id)?], &query, request)),
        ["compare", ""] => whole(page(&compared(&query)?, shared)),
        ["compare", "events"] => Ok(events(compared(&query)?, &query, request)),
        _ => Err(Reply::not_found()),
    }
}

fn known(id: &str) -> Result<Id, Reply> {
    Id::parse(id).ok_or_else(Reply::not_found)
}

/// The runs of a comparison, each once.
fn compared(query: &Query) -> Result<Vec<Id>, Reply> {
    let mut ids = Vec::new();
    for id in query.all("run") {
        let id = known(id)?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    match ids.len() {
        2..=MOST => Ok(ids),
        _ => Err(Reply::text(400, &format!("2 to {MOST} runs are compared."))),
    }
}

fn page(ids: &[Id], shared: &BoardShared) -> Reply {
    match runs_page(shared, ids) {
        Ok(Some(html)) => Reply::html(html),
        Ok(None) => Reply::not_found(),
        Err(e) => Reply::text(500, &base::display::message(&e.message)),
    }
}

fn events(ids: Vec<Id>, query: &Query, request: &Request) -> Answer {
    let from = request.last.as_deref().or(query.all("from").next());
    Answer::Events(Stream::of_runs(ids, from.unwrap_or_default()))
}

/// The table as JSON; 400 says what is wrong with a condition.
fn table(query: &Query, shared: &BoardShared) -> Reply {
    let filters = query.all("filter").map(Filter::from_str).collect::<Result<Vec<_>, _>>();
    let sort = query.all("sort").next().map_or(Ok(SortBy::newest_first()), SortBy::from_str);
    match (filters, sort) {
        (Ok(filters), Ok(sort)) => {
            let listing = Listing { filters, sort, limit: None };
            let text = table_json(shared, &listing).to_string();
            Reply { status: 200, kind: "application/json", ..Reply::text(200, &text) }
        }
        (Err(why), _) | (_, Err(why)) => Reply::text(400, &base::display::message(&why)),
    }
}

/// The part of an address after `?`.
#[derive(Debug, PartialEq, Eq)]
struct Query(Vec<(String, String)>);

impl Query {
    fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(a, b)| (decoded(a), decoded(b)))
                .collect(),
        )
    }

    /// The values of a name.
    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

/// Without the escapes of a form: `+` and `%20`.
fn decoded(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_as_browsers_write_them() {
        let query = Query::parse("filter=val.accuracy%3E%3D0.9&filter=name%7Ea+b&&sort=-best&x&bad=%zz%4");
        assert_eq!(query.all("filter").collect::<Vec<_>>(), ["val.accuracy>=0.9", "name~a b"]);
        assert_eq!(query.all("sort").next(), Some("-best"));
        assert_eq!((query.all("x").next(), query.all("bad").next()), (Some(""), Some("%zz%4")));
        assert_eq!(decoded("%E2%9C%93%ff"), "✓\u{fffd}");
    }
}
