//! Copies values from a device without blocking the host. Burn starts the copy of a tensor when its values are first
//! read, after all operations queued by then: reading a step's numbers after queueing the next step would wait for
//! both. A thread that reads at once keeps the copy's place in the queue.
//!
//! It reads on the stream of the thread that asks. Between streams CubeCL 0.11.3 waits by when a buffer was allocated,
//! not by when it was last written: a value that an operation changes in place, such as a gradient that is added to,
//! could be copied before that operation has run.

use base::error::{Error, Result};
use burn::tensor::{DType, Device, Shape, StreamId, Tensor, TensorData};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use std::fmt::Display;
use std::sync::OnceLock;

/// A tensor's values, as f32, being copied.
pub struct Readback(Receiver<Result<Vec<f32>>>);

struct ReadbackJob {
    data: TensorData,
    stream: StreamId,
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
        let data = tensor.try_into_data().map_err(device_failed)?;
        let job = ReadbackJob { data, stream: StreamId::current(), to };
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
    tensor.try_into_vec_as().map_err(device_failed)
}

/// Sends values, row-major, to a device as f32, whatever the device's default type is. As one row: a runtime may pad the
/// rows of a matrix, for which CubeCL may choose other kernels than for what operations return. A resumed run would differ
/// in the last bits from one that went on.
pub fn send<const D: usize>(values: Vec<f32>, shape: impl Into<Shape>, device: &Device) -> Tensor<D> {
    let shape = shape.into();
    let data = TensorData::new(values, [shape.num_elements()]);
    Tensor::<1>::from_data(data, (device, DType::F32)).reshape(shape)
}

impl ReadbackJob {
    fn run(self) {
        let values = self.stream.executes(|| self.data.convert::<f32>().try_into_vec());
        // Nobody receives the values of an abandoned step.
        let _ = self.to.send(values.map_err(device_failed));
    }
}

/// The reader thread of this process.
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

pub(super) fn device_failed(error: impl Display) -> Error {
    let error = error.to_string();
    let causes = causes(&error);
    match causes.iter().find(|cause| cause.contains("out of device memory")) {
        Some(cause) => Error::unavailable(format!("the device failed: {cause}")).hint(
            "a smaller `batch_size` needs less; `train.accumulate` keeps the samples of a step as they are",
        ),
        None => Error::unavailable(format!("the device failed: {}", causes.join(": "))),
    }
}

/// The causes in an error's text: CubeCL writes one below the other, with headings, with notes that there is no backtrace,
/// and with the operations that were skipped.
fn causes(error: &str) -> Vec<&str> {
    const HEADINGS: [&str; 4] = ["Caused by:", "Backtrace:", "Asked at:", "No backtrace available"];
    let is_cause =
        |line: &&str| !line.is_empty() && !HEADINGS.contains(line) && !line.starts_with("skipped `");
    error.lines().map(str::trim).filter(is_cause).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{DType, Device};

    #[test]
    fn an_errors_causes_are_one_line() {
        let lost = "The device is poisoned\nCaused by:\n  skipped `ReduceKernel`: it needed memory\n  cuModuleLoadData failed with status 719\nBacktrace:\nNo backtrace available\n";
        assert_eq!(
            device_failed(lost).message,
            "the device failed: The device is poisoned: cuModuleLoadData failed with status 719"
        );
        let full = "An IO error happened\nCaused by:\n  out of device memory allocating 64 bytes\nNo backtrace available";
        let full = device_failed(full);
        assert_eq!(full.message, "the device failed: out of device memory allocating 64 bytes");
        assert!(full.hint.is_some_and(|hint| hint.contains("`batch_size`")));
    }

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
