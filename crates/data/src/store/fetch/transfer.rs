//! The transfer of a file from one address: attempts, each of which continues where the previous one ended.

use super::client::Client;
use super::part::PartialFile;
use super::progress::Progress;
use crate::store::FileSpec;
use base::error::Error;
use std::io::Read;
use std::time::Duration;

/// Limit for files of unknown size.
const MAX_BYTES: u64 = 16 << 30;
/// Attempts without a new byte before an address is given up.
const ATTEMPTS: u32 = 5;
/// The pause before the second attempt; it doubles for each further one, up to `LONGEST_PAUSE`.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(16);

/// Times of a transfer.
pub(super) struct Fetcher<'a> {
    /// A transfer of which no byte arrives for this long is cut.
    pub stall: Duration,
    /// Shortest time between two lines about the progress.
    pub every: Duration,
    pub sleep: &'a dyn Fn(Duration),
}

/// Why a file was not downloaded.
#[derive(Debug)]
pub(super) enum Failed {
    /// An error of this machine, such as a full disk: no other address helps.
    Here(Error),
    /// The address does not deliver; `again`: it may later.
    There { why: String, again: bool },
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Here(error)
    }
}

impl Fetcher<'_> {
    /// Transfers the file to `part`, after what is in it.
    pub fn transfer(
        &self,
        url: &str,
        spec: &FileSpec,
        part: &mut PartialFile,
        say: &mut dyn FnMut(&str),
    ) -> Result<(), Failed> {
        let client = Client::new(self.stall);
        let mut validator = None;
        let (mut most, mut in_vain) = (part.len(), 0);
        loop {
            let failed = match self.attempt(&client, url, spec, &mut validator, part, say) {
                Err(Failed::There { why, again: true }) => why,
                ended => return ended,
            };
            // A server that always starts anew and is always cut makes no progress.
            in_vain = if part.len() > most { 1 } else { in_vain + 1 };
            most = most.max(part.len());
            if in_vain >= ATTEMPTS {
                return Err(Failed::There { why: failed, again: false });
            }
            let pause = (PAUSE * 2u32.pow(in_vain - 1)).min(LONGEST_PAUSE);
            say(&format!("{url}: {failed}; trying again in {} s", pause.as_secs()));
            (self.sleep)(pause);
        }
    }

    fn attempt(
        &self,
        client: &Client,
        url: &str,
        spec: &FileSpec,
        validator: &mut Option<String>,
        part: &mut PartialFile,
        say: &mut dyn FnMut(&str),
    ) -> Result<(), Failed> {
        let too_long = spec.size.is_some_and(|size| part.len() > size);
        if too_long || (spec.digest.is_none() && validator.is_none()) {
            part.restart()?;
        }
        if spec.size == Some(part.len()) {
            return Ok(());
        }
        let answer = client.get(url, part.len(), validator.as_deref())?;
        if answer.start != part.len() {
            part.restart()?;
            if answer.start != 0 {
                let why = "the server sends another part than it was asked for".to_owned();
                return Err(Failed::There { why, again: true });
            }
        }
        let limit = spec.size.unwrap_or(MAX_BYTES);
        if let (Some(total), Some(size)) = (answer.total, spec.size)
            && total != size
        {
            part.restart()?;
            let why = format!("its file has {total} bytes instead of {size}");
            return Err(Failed::There { why, again: false });
        }
        *validator = answer.validator;
        let mut progress = Progress::new(url, part.len(), answer.total.or(spec.size), self.every, say);
        receive(client, answer.body, part, limit, &mut progress)?;
        match answer.total.or(spec.size).filter(|total| *total != part.len()) {
            Some(_) => {
                let why = format!("the transfer ended after {} bytes", part.len());
                Err(Failed::There { why, again: true })
            }
            None => Ok(()),
        }
    }
}

/// Appends the body to `part`, until its end.
fn receive(
    client: &Client,
    mut body: Box<dyn Read>,
    part: &mut PartialFile,
    limit: u64,
    progress: &mut Progress<'_>,
) -> Result<(), Failed> {
    part.begin_transfer();
    let mut buffer = vec![0; 1 << 18];
    loop {
        let n = match body.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(Failed::There { why: client.cut(&e), again: true }),
        };
        if part.len() + n as u64 > limit {
            part.restart()?;
            let why = format!("its file is larger than {limit} bytes");
            return Err(Failed::There { why, again: false });
        }
        part.append(&buffer[..n])?;
        progress.at(part.len());
    }
}
