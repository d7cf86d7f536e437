//! Values that come back from a device while the host goes on. Burn copies a tensor to the host when its values are first looked
//! at, behind all that the device was given by then: who looks at the numbers of a step after giving the device the next one
//! waits for both. A thread that looks at once keeps the copy's place in the queue.

use crate::error::{Error, Result};
use burn::tensor::{Tensor, TensorData};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use std::sync::OnceLock;

/// A tensor's values, as f32, on their way.
pub struct Readback(Receiver<Result<Vec<f32>>>);

struct Job {
    data: TensorData,
    to: Sender<Result<Vec<f32>>>,
}

impl Readback {
    /// Asks for the values behind all that the device was given so far. Does not wait for the device, but for the thread that
    /// gives it its work: operations that were held back to be fused with later ones go now.
    ///
    /// # Errors
    /// What failed on the device.
    pub fn start(tensor: Tensor<1>) -> Result<Self> {
        let (to, from) = bounded(1);
        // Not the values yet: their place on the device.
        let job = Job { data: tensor.try_into_data().map_err(failed)?, to };
        match reader() {
            Some(jobs) => drop(jobs.send(job)), // without a reader, `wait` finds that nobody answers
            None => job.run(),
        }
        Ok(Self(from))
    }

    /// Waits for the device.
    ///
    /// # Errors
    /// What failed on the device.
    pub fn wait(self) -> Result<Vec<f32>> {
        self.0
            .recv()
            .unwrap_or_else(|_| Err(Error::internal("the thread that reads from the device has ended")))
    }
}

/// A tensor's values, as f32, row-major; waits for them.
///
/// # Errors
/// What failed on the device.
pub fn read<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>> {
    tensor.try_into_vec_as().map_err(failed)
}

impl Job {
    fn run(self) {
        // Nobody waits for a step that was given up.
        let _ = self.to.send(self.data.convert::<f32>().try_into_vec().map_err(failed));
    }
}

/// The process's reader: one thread, because each one has a stream of its own on the device.
fn reader() -> Option<&'static Sender<Job>> {
    static READER: OnceLock<Option<Sender<Job>>> = OnceLock::new();
    let start = || {
        let (jobs, queue) = unbounded::<Job>();
        let run = move || queue.into_iter().for_each(Job::run);
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
    fn values_come_back_to_who_asked_for_them() {
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
