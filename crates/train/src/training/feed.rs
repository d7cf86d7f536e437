//! Feeds batches to the device. For a device with its own memory, images are sent as bytes and transformed there. The
//! images of the next batch are sent on a copy stream before the current batch is returned, so copies overlap with
//! computation.

use crate::device_transform::{DeviceBytes, DeviceTransform};
use crate::models::Input;
use crate::tasks::Batch;
use base::error::Result;
use burn::tensor::{Device, StreamId};
use data::{Dataset, FieldData, HostBatch, Loader, LoaderOptions, POSITIONS};
use sampler::Order;
use std::sync::{Arc, LazyLock};

/// One batch, ready for the network.
pub struct DeviceBatch {
    pub batch: Batch,
    /// The host batch that it was made from; return it with [`Feed::recycle`].
    pub host: HostBatch,
}

/// A batch whose images are being copied.
struct Sent {
    images: Option<DeviceBytes>,
    host: HostBatch,
}

/// The stream for copying images. CubeCL keeps memory that another stream reads until the read is complete, and waits
/// once eight such reads are pending, so only images use this stream and one operation reads them.
static COPIES: LazyLock<StreamId> = LazyLock::new(StreamId::allocate);

/// Converts a [`Loader`]'s batches to batches on the device.
///
/// Sending copies a batch to memory that the tensor owns and never waits for the device. CubeCL's CUDA runtime copies
/// the data to pinned memory on its own thread before it enqueues the transfer, so batches are not staged here
/// (`Device::staging` would make this thread wait for that one).
pub struct Feed {
    loader: Loader,
    device: Device,
    /// Tensors are in host memory: sending bytes, or sending ahead, has no advantage.
    host: bool,
    transform: Option<DeviceTransform>,
    ahead: Option<Result<Sent>>,
}

impl Feed {
    /// `host`: the device computes in host memory. Otherwise as [`Loader::new`].
    pub fn new(
        dataset: Arc<dyn Dataset>,
        order: impl Order + 'static,
        options: LoaderOptions,
        device: &Device,
        host: bool,
    ) -> Result<Self> {
        let loader = Loader::new(dataset, order, options, !host)?;
        let transform = loader.transform().map(|transform| DeviceTransform::new(transform, device));
        Ok(Self { loader, device: device.clone(), host, transform, ahead: None })
    }

    /// Returns a batch's buffers for reuse.
    pub fn recycle(&mut self, batch: HostBatch) {
        self.loader.recycle(batch);
    }

    fn send(&mut self) -> Option<Result<Sent>> {
        let batch = self.loader.next()?;
        Some(batch.map(|host| {
            let images = match (&host.input.data, &self.transform) {
                (FieldData::Bytes(bytes), Some(_)) => {
                    Some(COPIES.executes(|| DeviceBytes::send(bytes, &self.device)))
                }
                _ => None,
            };
            Sent { images, host }
        }))
    }

    fn receive(&self, Sent { images, host }: Sent) -> Result<DeviceBatch> {
        let mut input = match (images, &self.transform) {
            (Some(images), Some(transform)) => Input::from_tensor(transform.apply(images, &host.draws)),
            _ => Input::from_host(&host.input, host.len, &self.device),
        };
        let sent = |field| Input::from_host(field, host.len, &self.device);
        if let Some(positions) = host.fields.get(POSITIONS) {
            input = input.with_positions(positions)?;
        }
        let mut target = sent(&host.target);
        if host.has_untrained {
            target = target.with_untrained(&host.target);
        }
        let fields = host.fields.iter().map(|(name, field)| (name.clone(), sent(field))).collect();
        Ok(DeviceBatch { batch: Batch { input, target, fields }, host })
    }
}

impl Iterator for Feed {
    type Item = Result<DeviceBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let current = self.ahead.take().or_else(|| self.send())?;
        // Only if it is ready: the current batch must not wait until the next one is read.
        if !self.host && current.is_ok() && self.loader.ready() {
            self.ahead = self.send();
        }
        Some(current.and_then(|sent| self.receive(sent)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::Error;
    use data::{FieldFacts, FieldKind, FieldMut, SampleKey, SampleMut, StoredImages, transforms};
    use std::collections::BTreeMap;
    use std::sync::{Mutex, mpsc};
    use std::time::{Duration, Instant};
    use transforms::{Augment, ImageTransform, TransformOptions};

    /// Grey images of 6 x 5 whose pixels and label are the sample's number.
    struct Images {
        transform: ImageTransform,
        /// With a further field.
        mask: bool,
        damaged: Option<u64>,
        /// The reader of this sample waits until something is sent.
        gate: Option<(u64, Mutex<mpsc::Receiver<()>>)>,
    }

    fn images() -> Images {
        let augment = Augment { crop: Some(2), flip: true, cutout: Some(2), ..Augment::default() };
        let options =
            TransformOptions { normalize: Some((vec![0.3], vec![0.4])), augment, ..Default::default() };
        Images { transform: options.build([1, 6, 5], true), mask: false, damaged: None, gate: None }
    }

    impl Dataset for Images {
        fn len(&self) -> usize {
            23
        }
        fn input(&self) -> FieldFacts {
            FieldFacts { shape: vec![1, 6, 5], kind: FieldKind::Float }
        }
        fn target(&self) -> FieldFacts {
            FieldFacts { shape: vec![], kind: FieldKind::Index(23) }
        }
        fn fields(&self) -> BTreeMap<String, FieldFacts> {
            let facts = FieldFacts { shape: vec![2], kind: FieldKind::Float };
            self.mask.then(|| ("mask".to_owned(), facts)).into_iter().collect()
        }
        fn write(&self, key: SampleKey, mut to: SampleMut<'_>) -> Result<()> {
            let FieldMut::Float(input) = to.input else { unreachable!() };
            let mut pixels = [0; 30];
            self.write_stored(key, &mut pixels, to.target)?;
            self.transform.apply(key, &pixels, input);
            if self.mask {
                let FieldMut::Float(mask) = to.fields.take("mask")? else { unreachable!() };
                mask.copy_from_slice(&[key.sample as f32, -1.0]);
            }
            Ok(())
        }
        fn stored(&self) -> Option<&dyn StoredImages> {
            Some(self)
        }
    }

    impl StoredImages for Images {
        fn transform(&self) -> &ImageTransform {
            &self.transform
        }
        fn write_stored(&self, key: SampleKey, pixels: &mut [u8], target: FieldMut<'_>) -> Result<()> {
            let sample = key.sample;
            if self.damaged == Some(sample) {
                return Err(Error::data(format!("sample {sample} is damaged")));
            }
            if let Some((_, gate)) = self.gate.as_ref().filter(|(at, _)| *at == sample) {
                gate.lock().unwrap().recv().unwrap();
            }
            let FieldMut::Index(target) = target else { unreachable!() };
            pixels.fill(sample as u8);
            target[0] = sample as i64;
            Ok(())
        }
    }

    fn feed(images: Images, workers: usize, host: bool) -> Feed {
        let options =
            LoaderOptions { batch_size: 4, seed: 7, epoch: 2, start_batch: 1, workers, prefetch: 3 };
        let order: Vec<u64> = (0..23).rev().collect();
        Feed::new(Arc::new(images), order, options, &Device::flex(), host).unwrap()
    }

    /// Indices, labels and pixels of all batches, which are recycled.
    fn drain(mut feed: Feed) -> Vec<(Vec<u64>, Vec<i64>, Vec<f32>)> {
        let mut all = Vec::new();
        while let Some(batch) = feed.next() {
            let DeviceBatch { batch: Batch { input, target, .. }, host } = batch.unwrap();
            assert_eq!((input.shape(), target.shape()), (&[host.len, 1, 6, 5][..], &[host.len][..]));
            let labels = target.flat_index().into_data().convert::<i64>().try_into_vec().unwrap();
            let pixels = input.float::<4>().into_data().try_into_vec().unwrap();
            all.push((host.indices.clone(), labels, pixels));
            feed.recycle(host);
        }
        all
    }

    #[test]
    fn device_batches_equal_host_batches() {
        let expected = drain(feed(images(), 0, true));
        assert_eq!(expected.len(), 5);
        assert_eq!(expected[0].0, [18, 17, 16, 15]);
        for workers in [0, 2] {
            let got = drain(feed(images(), workers, false));
            assert_eq!(got.len(), expected.len());
            for (got, expected) in got.iter().zip(&expected) {
                assert_eq!((&got.0, &got.1), (&expected.0, &expected.1));
                assert!(got.2.iter().zip(&expected.2).all(|(a, b)| (a - b).abs() < 1e-6));
            }
        }
    }

    /// A data set with further fields is transformed on the host, for a device too.
    #[test]
    fn further_fields_come_with_images() {
        let expected = drain(feed(images(), 0, true));
        for host in [true, false] {
            let with_mask = || feed(Images { mask: true, ..images() }, 1, host);
            let mut masks = with_mask();
            let DeviceBatch { batch, host } = masks.next().unwrap().unwrap();
            let mask = batch.field("mask").unwrap().float::<2>();
            let values: Vec<f32> = mask.into_data().try_into_vec().unwrap();
            assert_eq!(values, [18., -1., 17., -1., 16., -1., 15., -1.]);
            assert!(matches!(host.input.data, FieldData::Float(_)));
            let got = drain(with_mask());
            assert!(got == expected, "the images are as without further fields");
        }
    }

    /// Waits until the loader's next batch is ready.
    fn await_loader(feed: &mut Feed) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !feed.loader.ready() {
            assert!(Instant::now() < deadline, "the loader makes no batch");
            std::thread::yield_now();
        }
    }

    #[test]
    fn sends_the_next_batch_ahead_only_to_a_device() {
        for host in [false, true] {
            let mut feed = feed(images(), 1, host);
            feed.ahead = feed.send();
            await_loader(&mut feed);
            assert_eq!(feed.next().unwrap().unwrap().host.indices[0], 18);
            let ahead = feed.ahead.as_ref().map(|batch| batch.as_ref().unwrap().host.indices[0]);
            assert_eq!(ahead, (!host).then_some(14));
            assert_eq!(feed.next().unwrap().unwrap().host.indices[0], 14);
        }
    }

    #[test]
    fn a_batch_is_returned_before_the_next_one_is_read() {
        let (open, gate) = mpsc::channel();
        let gated = Images { gate: Some((14, Mutex::new(gate))), ..images() };
        let (got, first) = mpsc::channel();
        let opener = std::thread::spawn(move || {
            let in_time = first.recv_timeout(Duration::from_secs(60)).is_ok();
            open.send(()).unwrap();
            in_time
        });
        let mut feed = feed(gated, 1, false);
        assert_eq!(feed.next().unwrap().unwrap().host.indices[0], 18);
        got.send(()).unwrap();
        assert!(opener.join().unwrap(), "the first batch came after the second");
        assert_eq!(feed.next().unwrap().unwrap().host.indices[0], 14);
    }

    #[test]
    fn errors_are_returned_in_order() {
        // Sample 12 is in the second batch.
        let mut feed = feed(Images { damaged: Some(12), ..images() }, 1, false);
        feed.ahead = feed.send();
        await_loader(&mut feed);
        assert!(feed.next().unwrap().is_ok());
        assert!(feed.ahead.as_ref().unwrap().is_err());
        assert_eq!(feed.next().unwrap().err().unwrap().message, "sample 12 is damaged");
        assert!(feed.next().is_none());
    }
}
