//! Lines for the one who watches, on standard error. A terminal or a pipe that is gone is no reason not to train, so nothing here
//! can fail: `eprintln!` would panic.

use std::fmt;
use std::io::Write;

/// As `eprintln!`, but what can't be written is left out.
macro_rules! say {
    ($($arg:tt)*) => { $crate::say::line(format_args!($($arg)*)) };
}
pub(crate) fn line(text: fmt::Arguments<'_>) {
    write_line(&mut std::io::stderr().lock(), text);
}

/// In one write: standard error is shared with other ranks and with a launcher, whose words would come between the parts.
fn write_line(to: &mut impl Write, text: fmt::Arguments<'_>) {
    let _ = to.write_all(format!("{text}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_write() {
        struct Writes(Vec<Vec<u8>>);
        impl Write for Writes {
            fn write(&mut self, part: &[u8]) -> std::io::Result<usize> {
                self.0.push(part.to_vec());
                Ok(part.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let mut to = Writes(Vec::new());
        write_line(
            &mut to,
            format_args!("Slurm requeued job {}; it goes on from {}", 165, "the last checkpoint"),
        );
        assert_eq!(to.0, [b"Slurm requeued job 165; it goes on from the last checkpoint\n".to_vec()]);
    }
}
