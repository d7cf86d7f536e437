//! The terminal of the progress bar. Each frame is one write, which does not wait for a stopped terminal (Ctrl-S).

#![allow(unsafe_code)]

use crate::status;
use indicatif::{ProgressDrawTarget, TermLike};
use std::fmt::Write;
use std::io::{IsTerminal, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Frames per second.
const RATE: u8 = 20;

/// The frame under construction.
#[derive(Debug, Default)]
struct Screen(Mutex<String>);

/// Standard error, if it can show a bar.
pub fn target() -> ProgressDrawTarget {
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    match std::io::stderr().is_terminal() && !dumb {
        true => ProgressDrawTarget::term_like_with_hz(Box::new(Screen::default()), RATE),
        false => ProgressDrawTarget::hidden(),
    }
}

/// The columns of the terminal, now.
pub fn columns() -> usize {
    size().0.into()
}

static NO_BARS: AtomicBool = AtomicBool::new(false);

/// This process shows no bars outside of training (`--progress plain`, `--progress none`).
pub fn forbid_bars() {
    NO_BARS.store(true, Ordering::Relaxed);
}

/// Where a bar outside of training is shown; `None` if lines are.
pub fn bar_target() -> Option<ProgressDrawTarget> {
    let target = (!NO_BARS.load(Ordering::Relaxed)).then(target)?;
    (!target.is_hidden()).then_some(target)
}

/// The columns of the terminal that standard error is; `None` for a file or a pipe.
pub fn columns_of_errors() -> Option<usize> {
    std::io::stderr().is_terminal().then(columns)
}

/// The columns of the terminal that standard output is; `None` for a file or a pipe.
pub fn columns_of_output() -> Option<usize> {
    let terminal = std::io::stdout().is_terminal();
    terminal.then(|| window(libc::STDOUT_FILENO).ws_col.into()).filter(|columns| *columns > 0)
}

fn window(descriptor: libc::c_int) -> libc::winsize {
    // SAFETY: the call writes only to `size`, for which all zeroes are valid.
    unsafe {
        let mut size = std::mem::zeroed::<libc::winsize>();
        libc::ioctl(descriptor, libc::TIOCGWINSZ, &mut size);
        size
    }
}

/// Columns and rows.
fn size() -> (u16, u16) {
    let size = window(libc::STDERR_FILENO);
    let known = |n: u16, usual| if n == 0 { usual } else { n };
    (known(size.ws_col, 80), known(size.ws_row, 24))
}

impl Screen {
    fn frame(&self) -> MutexGuard<'_, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `ESC [ n what`.
    fn moves(&self, n: usize, what: char) -> Result<()> {
        if n > 0 {
            let _ = write!(self.frame(), "\x1b[{n}{what}");
        }
        Ok(())
    }
}

impl TermLike for Screen {
    fn width(&self) -> u16 {
        size().0
    }
    fn height(&self) -> u16 {
        size().1
    }
    fn move_cursor_up(&self, n: usize) -> Result<()> {
        self.moves(n, 'A')
    }
    fn move_cursor_down(&self, n: usize) -> Result<()> {
        self.moves(n, 'B')
    }
    fn move_cursor_right(&self, n: usize) -> Result<()> {
        self.moves(n, 'C')
    }
    fn move_cursor_left(&self, n: usize) -> Result<()> {
        self.moves(n, 'D')
    }
    fn write_line(&self, line: &str) -> Result<()> {
        self.frame().extend([line, "\n"]);
        Ok(())
    }
    fn write_str(&self, text: &str) -> Result<()> {
        self.frame().push_str(text);
        Ok(())
    }
    fn clear_line(&self) -> Result<()> {
        self.frame().push_str("\r\x1b[2K");
        Ok(())
    }
    fn flush(&self) -> Result<()> {
        let frame = std::mem::take(&mut *self.frame());
        if !frame.is_empty() {
            status::offer(frame.into_bytes());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_contain_terminal_escape_codes() {
        let screen = Screen::default();
        screen.move_cursor_up(0).expect("can't fail");
        screen.move_cursor_up(2).expect("can't fail");
        screen.clear_line().expect("can't fail");
        screen.write_line("a").expect("can't fail");
        screen.write_str("b").expect("can't fail");
        assert_eq!(*screen.frame(), "\x1b[2A\r\x1b[2Ka\nb");
        let (columns, rows) = size();
        assert!(columns > 0 && rows > 0);
    }
}
