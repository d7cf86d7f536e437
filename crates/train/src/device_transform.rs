//! [`ImageTransform`] on a device with its own memory. Images are sent as stored bytes, a quarter of the size of floats,
//! and cropped, flipped, normalised and cut out on the device. For each sample the host sends the source of each row and
//! column, and the rows and columns that cutout clears.

use burn::tensor::{DType, Device, FloatDType, Int, IntDType, Tensor, TensorData};
use data::transforms::{Draws, ImageShape, ImageTransform};
use ddp::device::send;
use std::ops::Range;

/// Converts pixels to floats on one device, for one split: [`ImageTransform`] up to rounding.
///
/// A device computes `(pixel + shift) * factor`. CubeCL fuses the two operations in all batches but a process's first, and a
/// fused `pixel * factor + offset` is rounded once: a resumed run would differ in the last bits from one that went on.
pub struct DeviceTransform {
    shape: ImageShape,
    device: Device,
    /// `[1, channels, 1]`, f32.
    shift: Tensor<3>,
    factor: Tensor<3>,
    /// Whether crop or flip is enabled.
    moves: bool,
    cuts: bool,
}

impl DeviceTransform {
    /// The same transform on `device`; sends its constants there.
    pub fn new(transform: &ImageTransform, device: &Device) -> Self {
        let (shape, augment) = (transform.shape(), transform.augment());
        let constant = |part: fn(&(f32, f32)) -> f32| {
            let values = transform.affine().iter().map(part).collect();
            send(values, [1, shape[0], 1], device)
        };
        Self {
            shape,
            device: device.clone(),
            shift: constant(|&(factor, offset)| (f64::from(offset) / f64::from(factor)) as f32),
            factor: constant(|&(factor, _)| factor),
            moves: augment.crop.is_some() || augment.flip,
            cuts: augment.cutout.is_some(),
        }
    }

    /// The network's input `[batch, channels, height, width]`, from as many bytes and one [`Draws`] per sample. On an
    /// asynchronous device this only enqueues work.
    pub fn apply(&self, bytes: DeviceBytes, draws: &[Draws]) -> Tensor<4> {
        let [channels, height, width] = self.shape;
        let (batch, plane) = (draws.len(), height * width);
        let mut x = bytes.into_floats().reshape([batch, channels, plane]);
        if self.moves {
            let source_indices = self.source_indices(draws);
            let inside = source_indices.clone().greater_equal_scalar(0).cast(FloatDType::F32);
            // Black is pixel 0, normalised like any other.
            x = x.gather(2, source_indices.clamp_min(0).expand([batch, channels, plane])) * inside;
        }
        x = (x + self.shift.clone()) * self.factor.clone();
        if self.cuts {
            x = x * self.cutout_mask(draws);
        }
        x.reshape([batch, channels, height, width]).cast(self.device.settings().float_dtype)
    }

    /// The index in the sample's plane from which each output pixel is read, `[batch, 1, height * width]`; negative if it
    /// is outside the image.
    fn source_indices(&self, draws: &[Draws]) -> Tensor<3, Int> {
        let [_, height, width] = self.shape;
        // The sum with any valid index is negative.
        let outside = -((height * width) as i32);
        let place = |at: isize, end: usize, step: usize| match usize::try_from(at) {
            Ok(at) if at < end => (at * step) as i32,
            _ => outside,
        };
        let row = |d: &Draws, y: usize| place(y as isize + d.top, height, width);
        let column = |d: &Draws, x: usize| {
            let x = if d.flip { width - 1 - x } else { x };
            place(x as isize + d.left, width, 1)
        };
        let rows = indices(per_sample(draws, height, row), [draws.len(), height, 1], &self.device);
        let columns = indices(per_sample(draws, width, column), [draws.len(), 1, width], &self.device);
        (rows + columns).reshape([draws.len(), 1, height * width])
    }

    /// 0 in the square that cutout clears, 1 elsewhere: `[batch, 1, height * width]`.
    fn cutout_mask(&self, draws: &[Draws]) -> Tensor<3> {
        let [_, height, width] = self.shape;
        let hit = |range: Option<&Range<usize>>, i: usize| f32::from(range.is_some_and(|r| r.contains(&i)));
        let row = |d: &Draws, y: usize| hit(d.hole.as_ref().map(|(rows, _)| rows), y);
        let column = |d: &Draws, x: usize| hit(d.hole.as_ref().map(|(_, columns)| columns), x);
        let rows = send::<3>(per_sample(draws, height, row), [draws.len(), height, 1], &self.device);
        let columns = send::<3>(per_sample(draws, width, column), [draws.len(), 1, width], &self.device);
        (rows * columns).neg().add_scalar(1.0).reshape([draws.len(), 1, height * width])
    }
}

/// `[draws, length]`, row-major.
fn per_sample<T>(draws: &[Draws], length: usize, value: impl Fn(&Draws, usize) -> T) -> Vec<T> {
    let value = &value;
    draws.iter().flat_map(|d| (0..length).map(move |i| value(d, i))).collect()
}

fn indices(values: Vec<i32>, shape: [usize; 3], device: &Device) -> Tensor<3, Int> {
    let data = TensorData::new(values, [shape.iter().product::<usize>()]);
    Tensor::<1, Int>::from_data(data, device).reshape(shape)
}

/// Bytes sent to a device; packed four to a word if the device has no 8-bit type (WebGPU).
pub struct DeviceBytes {
    sent: Tensor<1, Int>,
    len: usize,
    packed: bool,
}

impl DeviceBytes {
    /// Enqueues the copy on the current stream. Never waits for the device.
    pub fn send(bytes: &[u8], device: &Device) -> Self {
        if !device.supports_dtype(IntDType::U8) {
            return Self::send_packed(bytes, device);
        }
        let data = TensorData::new(bytes.to_vec(), [bytes.len()]);
        let sent = Tensor::<1, Int>::from_data(data, (device, DType::U8));
        Self { sent, len: bytes.len(), packed: false }
    }

    fn send_packed(bytes: &[u8], device: &Device) -> Self {
        let word = |four: &[u8]| {
            let mut whole = [0; 4];
            whole[..four.len()].copy_from_slice(four);
            i32::from_le_bytes(whole)
        };
        let words: Vec<i32> = bytes.chunks(4).map(word).collect();
        let count = words.len();
        let sent = Tensor::<1, Int>::from_data(TensorData::new(words, [count]), (device, DType::I32));
        Self { sent, len: bytes.len(), packed: true }
    }

    /// The values as f32: `[bytes]`.
    pub fn into_floats(self) -> Tensor<1> {
        if !self.packed {
            return self.sent.cast(FloatDType::F32);
        }
        let [count] = self.sent.dims();
        let shifts = TensorData::new(vec![0i32, 8, 16, 24], [4]);
        let shifts = Tensor::<1, Int>::from_data(shifts, (&self.sent.device(), DType::I32));
        // The mask removes the sign bits that an arithmetic shift brings in.
        let bytes_of = self
            .sent
            .reshape([count, 1])
            .expand([count, 4])
            .bitwise_right_shift(shifts.reshape([1, 4]).expand([count, 4]));
        let values = bytes_of.bitwise_and_scalar(255).cast(FloatDType::F32).reshape([count * 4]);
        if count * 4 == self.len { values } else { values.narrow(0, 0, self.len) }
    }
}

#[cfg(test)]
#[path = "device_transform_tests.rs"]
mod tests;
