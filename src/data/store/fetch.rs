//! Downloads files if the spec gives a URL. A file is renamed to its final name only after it has been checked: otherwise a
//! wrong file would be used at every later start.

use super::digest::{FileSpec, verify};
use super::place::{Cache, create_atomically};
use crate::error::{Error, IoContext, Result};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Limit for files of unknown size.
const MAX_BYTES: u64 = 16 << 30;

/// Downloads `url` to `target` and reports progress to `say`, at most once per second. The file must match `spec` and pass
/// `check`, which parses it: many files have no known digest.
pub fn download(
    url: &str,
    target: &Path,
    spec: &FileSpec,
    check: impl FnOnce(&Path) -> Result<()>,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    say(&format!("downloading {url}"));
    create_atomically(target, |path| {
        transfer(url, path, spec.size.unwrap_or(MAX_BYTES), say)?;
        let checked = verify(path, spec, &Cache::none()).and_then(|()| check(path));
        checked.map_err(|e| {
            Error::data(format!("{url} is not the expected file\n{}", e.message))
                .hint("check `url`; or the transfer was cut short. The downloaded file was removed")
        })
    })
}

fn transfer(url: &str, path: &Path, max: u64, say: &mut dyn FnMut(&str)) -> Result<()> {
    let failed = |e: &dyn std::fmt::Display| {
        Error::data(format!("cannot download {url}: {e}"))
            .hint("check the URL and the network, or copy the file there by hand")
    };
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_connect(Some(Duration::from_secs(20)))
        .timeout_recv_response(Some(Duration::from_secs(60)))
        .timeout_recv_body(Some(Duration::from_secs(3600)))
        .build()
        .into();
    let response = agent.get(url).header("Accept-Encoding", "identity").call().map_err(|e| failed(&e))?;
    let total = response.body().content_length();
    let mut body = response.into_body().into_with_config().limit(max + 1).reader();
    let mut file = File::create(path).doing("write", path)?;
    let (mut buffer, mut got, mut told) = (vec![0; 1 << 18], 0u64, Instant::now());
    loop {
        let n = body.read(&mut buffer).map_err(|e| failed(&e))?;
        if n == 0 {
            break;
        }
        got += n as u64;
        if got > max {
            return Err(failed(&format!("it is larger than {max} bytes")));
        }
        file.write_all(&buffer[..n]).doing("write", path)?;
        if told.elapsed() >= Duration::from_secs(1) {
            told = Instant::now();
            let of = total.map_or(String::new(), |t| format!(" of {:.1}", t as f64 / 1e6));
            say(&format!("downloading {url}: {:.1}{of} MB", got as f64 / 1e6));
        }
    }
    if total.is_some_and(|total| total != got) {
        return Err(failed(&format!("the transfer ended after {got} bytes")));
    }
    file.sync_all().doing("write", path)
}

#[cfg(test)]
mod tests {
    use super::super::Digest;
    use super::*;
    use crate::data::testing::serve_once;

    fn fetch(folder: &Path, response: &[u8]) -> Result<Vec<String>> {
        let spec = FileSpec {
            size: Some(3),
            digest: Some(Digest::Md5("900150983cd24fb0d6963f7d28e17f72".to_owned())),
            from: "nowhere".to_owned(),
        };
        let url = serve_once(response);
        let mut said = Vec::new();
        let check = |_: &Path| Ok(());
        download(&url, &folder.join("abc"), &spec, check, &mut |line| said.push(line.to_owned()))?;
        Ok(said)
    }

    /// Without a digest, only parsing shows that the file is wrong.
    #[test]
    fn removes_a_download_that_fails_its_check() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("t.csv");
        let spec = FileSpec { size: None, digest: None, from: "nowhere".to_owned() };
        let url = serve_once(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>");
        let check = |path: &Path| {
            let text = std::fs::read_to_string(path).unwrap();
            Err(Error::data(format!("{} is not a table: {text}", path.display())))
        };
        let error = download(&url, &target, &spec, check, &mut |_| ()).unwrap_err();
        let expected = format!("{url} is not the expected file\n{} is not a table: <html>", target.display());
        assert_eq!(error.message, expected);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_download_is_renamed_only_if_complete_and_valid() {
        let folder = tempfile::tempdir().unwrap();
        for (response, why) in [
            (&b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"[..], "404"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabd", "is not the expected file"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", "cannot download"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabcdefghi", "larger than 3 bytes"),
        ] {
            let error = fetch(folder.path(), response).unwrap_err();
            assert!(error.message.contains(why), "{error}");
            assert!(!folder.path().join("abc").exists());
        }
        let said = fetch(folder.path(), b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc").unwrap();
        assert!(said[0].starts_with("downloading http://127.0.0.1:"), "{said:?}");
        assert_eq!(std::fs::read(folder.path().join("abc")).unwrap(), b"abc");
    }
}
