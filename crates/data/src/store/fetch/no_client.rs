//! A build without the cargo feature `download`.

use super::transfer::Failed;
use std::io::Read;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Client;

#[allow(dead_code, reason = "no request is answered")]
pub(super) struct Answer {
    pub start: u64,
    pub total: Option<u64>,
    pub validator: Option<String>,
    pub body: Box<dyn Read>,
}

impl Client {
    pub fn new(_stall: Duration) -> Self {
        Self
    }

    pub fn get(&self, _url: &str, _from: u64, _validator: Option<&str>) -> Result<Answer, Failed> {
        let why = super::Refusal::NoClient.to_string();
        Err(Failed::There { why, again: false })
    }

    pub fn cut(&self, e: &std::io::Error) -> String {
        e.to_string()
    }
}
