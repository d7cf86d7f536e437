//! The machine's own limits, measured in the same run by the simplest means: copying memory, and sending a message
//! over a loopback connection. They are a reference for an all-reduce, not a requirement.

use super::units;
use base::error::{Error, Result};
use serde::Serialize;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Measuring time per value; the rows' budget if that is less.
const TIME: Duration = Duration::from_millis(200);
const MIN_SAMPLES: usize = 3;
/// Shorter copies are measured in groups of at least this length.
const SPAN: Duration = Duration::from_micros(20);
/// Timeout of a silent loopback connection.
const SILENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// One way: half the round-trip time of 4 bytes.
    pub tcp_ping_us: f64,
    pub sizes: Vec<SizeLimits>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SizeLimits {
    pub bytes: usize,
    /// Bytes per second copied by a single thread.
    pub memcpy_one_gbs: f64,
    /// The same for each thread, with as many threads as ranks.
    pub memcpy_all_gbs: f64,
    /// A message of this size over TCP, until its receiver has confirmed it with one byte.
    pub tcp_us: f64,
    pub tcp_gbs: f64,
}

/// Measures the limits for `sizes` and `world` ranks.
pub fn measure(world: usize, sizes: &[usize], budget: Duration) -> Result<Limits> {
    let time = TIME.min(budget);
    let failed = |e: io::Error| Error::internal(format!("cannot measure TCP on loopback: {e}"));
    let tcp_ping_us = messages(4, 4, time).map_err(failed)? / 2.0;
    let limits = |&bytes: &usize| {
        let tcp_us = messages(bytes, 1, time).map_err(failed)?;
        Ok(SizeLimits {
            bytes,
            memcpy_one_gbs: copies(1, bytes, time),
            memcpy_all_gbs: copies(world, bytes, time),
            tcp_us,
            tcp_gbs: units::gbs(bytes, tcp_us),
        })
    };
    Ok(Limits { tcp_ping_us, sizes: sizes.iter().map(limits).collect::<Result<_>>()? })
}

/// GB/s of each of `threads` threads that copy `bytes` repeatedly and at the same time, each between its own buffers.
fn copies(threads: usize, bytes: usize, time: Duration) -> f64 {
    let start = Barrier::new(threads);
    let rate = || {
        let (from, mut to) = (vec![1u8; bytes], vec![2u8; bytes]);
        let mut copy = |times: usize| {
            let begun = Instant::now();
            for _ in 0..times {
                to.copy_from_slice(black_box(&from));
                black_box(&mut to);
            }
            begun.elapsed()
        };
        let mut times = 1;
        while copy(times) < SPAN {
            times *= 2;
        }
        start.wait();
        let (mut copied, begun) = (0, Instant::now());
        while copied < MIN_SAMPLES * times || begun.elapsed() < time {
            copy(times);
            copied += times;
        }
        units::gbs(copied * bytes, us(begun.elapsed()))
    };
    let sum: f64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(rate)).collect();
        threads.into_iter().map(|t| t.join().unwrap_or(f64::NAN)).sum()
    });
    sum / threads as f64
}

/// Median microseconds for a message of `bytes` and an answer of `answer` bytes between two threads.
fn messages(bytes: usize, answer: usize, time: Duration) -> io::Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut here = TcpStream::connect(listener.local_addr()?)?;
    let (mut there, _) = listener.accept()?;
    for stream in [&here, &there] {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
    }
    std::thread::scope(|scope| {
        // Ends when the other side closes the connection.
        scope.spawn(move || {
            let mut buf = vec![0; bytes];
            while there.read_exact(&mut buf).is_ok() && there.write_all(&buf[..answer]).is_ok() {}
        });
        let (message, mut confirmed) = (vec![1; bytes], vec![0; answer]);
        let (mut samples, begun) = (Vec::new(), Instant::now());
        // The first iteration is a warm-up.
        while samples.len() <= MIN_SAMPLES || begun.elapsed() < time {
            let start = Instant::now();
            here.write_all(&message)?;
            here.read_exact(&mut confirmed)?;
            samples.push(start.elapsed());
        }
        drop(here);
        samples.remove(0);
        Ok(median_us(samples))
    })
}

fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn median_us(mut samples: Vec<Duration>) -> f64 {
    samples.sort_unstable();
    us(samples[samples.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_microseconds() {
        assert_eq!(median_us([3, 1, 7].map(Duration::from_millis).to_vec()), 3000.0);
    }

    #[test]
    fn measures_limits_for_every_size() {
        let sizes = [1, 4, 70_000];
        let limits = measure(3, &sizes, Duration::from_millis(5)).unwrap();
        assert_eq!(limits.sizes.iter().map(|s| s.bytes).collect::<Vec<_>>(), sizes);
        // No machine is this fast; there is no upper limit.
        assert!(limits.tcp_ping_us.is_finite() && limits.tcp_ping_us > 0.5, "{limits:?}");
        for s in &limits.sizes {
            assert!(s.tcp_us.is_finite() && s.tcp_us > 0.5, "{s:?}");
            assert!((s.tcp_gbs - s.bytes as f64 / s.tcp_us / 1e3).abs() < 1e-9, "{s:?}");
            assert!(s.memcpy_all_gbs > 0.0 && s.memcpy_one_gbs > 0.0, "{s:?}");
            assert!(s.memcpy_all_gbs < 1e4 && s.memcpy_one_gbs < 1e4, "{s:?}");
        }
    }
}
