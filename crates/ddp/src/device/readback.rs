//! Copies values from a device without blocking the host. Burn starts the copy of a tensor when its values are first
//! read, after all operations queued by then: reading a step's numbers after queueing the next step would wait for
//! both. A thread that reads at once keeps the copy's place in the queue.

use base::error::{Error, Result};
use burn::tensor::{Tensor, TensorData};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use std::sync::OnceLock;

/// A tensor's values, as f32, being copied.
pub struct Readback(Receiver<Result<Vec<f32>>>);

struct ReadbackJob {
    data: TensorData,
    to: Sender<Result<Vec<f32>>>,
}

impl Readback {
    /// Requests the values after all operations queued so far. Does not wait for the device, only for the thread that
    /// submits its work: operations held back for fusion are submitted now.
    ///
    /// # Errors
    /// A device error.
    pub fn start(tensor: Tensor<1>) -> Result<Self> {
        let (to, from) = bounded(1);
        // Not the values yet, but their location on the device.
        let job = ReadbackJob { data: tensor.try_into_data().map_err(failed)?, to };
        match reader() {
            Some(jobs) => drop(jobs.send(job)), // without a reader, `wait` finds the channel closed
            None => job.run(),
        }
        Ok(Self(from))
    }

    /// Waits for the device.
    ///
    /// # Errors
    /// A device error.
    pub fn wait(self) -> Result<Vec<f32>> {
        self.0
            .recv()
            .unwrap_or_else(|_| Err(Error::internal("the thread that reads from the device has ended")))
    }
}

/// Reads a tensor's values, as f32, row-major; waits for them.
///
/// # Errors
/// A device error.
pub fn read<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>> {
    tensor.try_into_vec_as().map_err(failed)
}

impl ReadbackJob {
    fn run(self) {
        // Nobody receives the values of an abandoned step.
        let _ = self.to.send(self.data.convert::<f32>().try_into_vec().map_err(failed));
    }
}

/// The reader thread of this process: only one, because each thread has its own stream on the device.
fn reader() -> Option<&'static Sender<ReadbackJob>> {
    static READER: OnceLock<Option<Sender<ReadbackJob>>> = OnceLock::new();
    let start = || {
        let (jobs, queue) = unbounded::<ReadbackJob>();
        let run = move || queue.into_iter().for_each(ReadbackJob::run);
        std::thread::Builder::new().name("readback".into()).spawn(run).ok()?;
        Some(jobs)
    };
    READER.get_or_init(start).as_ref()
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::unavailable(format!("the device failed: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{DType, Device};

    #[test]
    fn each_readback_returns_its_own_values() {
        let device = Device::flex();
        let ask = |i: usize| {
            let tensor = Tensor::<1>::from_data([i as f32, i as f32 + 0.5], (&device, DType::F64));
            Readback::start(tensor * 2.0).unwrap()
        };
        let coming: Vec<_> = (0..50).map(ask).collect();
        drop(ask(50));
        for (i, values) in coming.into_iter().enumerate().rev() {
            assert_eq!(values.wait().unwrap(), [2.0 * i as f32, 2.0 * i as f32 + 1.0]);
        }
    }
}
