//! Runs a list of tasks on a few threads, and provides scratch memory that outlives a call: each thread keeps its used
//! buffers, so that a training step allocates none after the first.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

/// Elements of a task of an element-wise loop.
pub(super) const BLOCK: usize = 1 << 14;

/// Runs `work` on every task, on at most `parallelism` threads of the current rayon pool (1: on the calling thread, in
/// order). Which thread takes which task is not fixed; tasks must be independent. Every second thread begins with the last
/// task, so that a thread tends to get the parts of a tensor that it has computed, which are in its cache.
pub(crate) fn for_each<T: Send>(
    parallelism: usize,
    tasks: impl ExactSizeIterator<Item = T> + DoubleEndedIterator + Send,
    work: impl Fn(T) + Sync,
) {
    let workers = parallelism.min(tasks.len());
    if workers <= 1 {
        tasks.for_each(work);
        return;
    }
    let queue = Mutex::new(tasks);
    // The lock is held only while taking a task, so only a panic of the iterator itself can poison it.
    let drain = || {
        let backwards = rayon::current_thread_index().is_some_and(|thread| thread % 2 == 1);
        let next = || {
            let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
            if backwards { queue.next_back() } else { queue.next() }
        };
        while let Some(task) = next() {
            work(task);
        }
    };
    rayon::scope(|scope| {
        for _ in 1..workers {
            scope.spawn(|_| drain());
        }
        drain();
    });
}

/// Runs `work` on blocks of three slices of equal length: two inputs and the output.
pub(super) fn zip_blocks(
    parallelism: usize,
    a: &[f32],
    b: &[f32],
    out: &mut [f32],
    work: impl Fn(&[f32], &[f32], &mut [f32]) + Sync,
) {
    assert_eq!(
        (a.len(), b.len()),
        (out.len(), out.len()),
        "lengths of an element-wise loop's inputs and output"
    );
    let tasks = out.chunks_mut(BLOCK).zip(a.chunks(BLOCK)).zip(b.chunks(BLOCK));
    for_each(parallelism, tasks, |((out, a), b)| work(a, b, out));
}

/// Parts of `len` elements of an output that may be empty, followed by empty ones without end.
pub(super) fn optional_chunks(output: &mut [f32], len: usize) -> impl Iterator<Item = &mut [f32]> {
    output.chunks_mut(len).chain(std::iter::repeat_with(Default::default))
}

/// Buffers kept per thread; further ones are dropped.
const KEPT: usize = 12;
/// Elements of a buffer that is kept, at most: 64 MiB.
const LARGEST: usize = 1 << 24;

thread_local! {
    static FREE: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Elements of a cache line. Buffers are aligned to it, so that a tile's side is one line.
const LINE: usize = 16;

/// A borrowed scratch buffer, returned to its thread when dropped.
pub(super) struct TaskBuffers {
    buffer: Vec<f32>,
    start: usize,
    len: usize,
}

/// A buffer of `len` elements with unspecified contents.
pub(super) fn scratch(len: usize) -> TaskBuffers {
    let needed = len + LINE - 1;
    let mut buffer = FREE.with_borrow_mut(|free| {
        // The smallest buffer that fits; if none does, the largest is replaced by a larger one.
        let tightest = (0..free.len()).filter(|&i| free[i].len() >= needed).min_by_key(|&i| free[i].len());
        let chosen = tightest.or_else(|| (0..free.len()).max_by_key(|&i| free[i].len()));
        chosen.map_or_else(Vec::new, |i| free.swap_remove(i))
    });
    if buffer.len() < needed {
        buffer = vec![0.0; needed];
    }
    let start = buffer.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE - 1);
    TaskBuffers { buffer, start, len }
}

impl Deref for TaskBuffers {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        &self.buffer[self.start..self.start + self.len]
    }
}

impl DerefMut for TaskBuffers {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.buffer[self.start..self.start + self.len]
    }
}

impl Drop for TaskBuffers {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        // At the end of a thread its list may already be gone; the buffer is freed then.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < KEPT && buffer.len() <= LARGEST {
                free.push(buffer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_task_runs_once() {
        for parallelism in [0, 1, 2, 5, 100] {
            let seen: Vec<AtomicUsize> = (0..17).map(|_| AtomicUsize::new(0)).collect();
            for_each(parallelism, 0..17usize, |i| {
                seen[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(seen.iter().all(|n| n.load(Ordering::Relaxed) == 1), "parallelism {parallelism}");
        }
    }

    #[test]
    fn scratch_buffers_are_reused() {
        std::thread::spawn(|| {
            let first = scratch(1000).as_ptr();
            let (second, other) = (scratch(500), scratch(500));
            assert_eq!(first, second.as_ptr());
            assert_ne!(first, other.as_ptr());
            assert_eq!((second.len(), other.len()), (500, 500));
        })
        .join()
        .unwrap();
    }
}
