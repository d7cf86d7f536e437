use super::*;
use data::SampleKey;
use data::testing::configure;
use data::transforms::{Augment, TransformOptions};
use data::{FieldData, Loader, LoaderOptions};

fn values(tensor: Tensor<4>) -> Vec<f32> {
    tensor.into_data().try_into_vec::<f32>().unwrap()
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Some are larger than the image: whole windows are black, or the whole image is cleared.
const CROPS: [Option<usize>; 4] = [None, Some(1), Some(4), Some(11)];
const CUTOUTS: [Option<usize>; 4] = [None, Some(1), Some(4), Some(30)];

/// Compares every combination on `device` with the host.
fn compare(device: &Device, shapes: &[ImageShape], crops: &[Option<usize>], cutouts: &[Option<usize>]) {
    for &shape in shapes {
        let [channels, height, width] = shape;
        let each = channels * height * width;
        let batch = 6;
        let bytes: Vec<u8> = (0..batch * each).map(|i| (i * 37 + 11) as u8).collect();
        for (&crop, &cutout) in crops.iter().flat_map(|c| cutouts.iter().map(move |h| (c, h))) {
            for (flip, normalised) in [(false, true), (true, true), (true, false)] {
                let stats =
                    (vec![0.49, 0.25, 0.1][..channels].to_vec(), vec![0.25, 0.5, 0.2][..channels].to_vec());
                let augment = Augment { crop, flip, cutout, ..Augment::default() };
                let options = TransformOptions {
                    normalize: normalised.then_some(stats),
                    augment,
                    ..Default::default()
                };
                let transform = options.build(shape, true);
                let key = |i: usize| SampleKey { seed: 3, epoch: 1, sample: i as u64 };
                let mut expected = vec![f32::NAN; bytes.len()];
                for (i, (out, image)) in expected.chunks_mut(each).zip(bytes.chunks(each)).enumerate() {
                    transform.apply(key(i), image, out);
                }
                let draws: Vec<Draws> = (0..batch).map(|i| transform.draw(key(i))).collect();
                let got =
                    DeviceTransform::new(&transform, device).apply(DeviceBytes::send(&bytes, device), &draws);
                assert_eq!(got.dims(), [batch, channels, height, width]);
                let difference = largest_difference(&values(got), &expected);
                assert!(difference <= 1e-6, "{difference} with {shape:?} {augment:?}");
            }
        }
    }
}

#[test]
fn every_combination_equals_the_host() {
    let shapes = [[1, 1, 1], [1, 5, 7], [3, 9, 6], [3, 8, 8]];
    compare(&Device::flex(), &shapes, &CROPS, &CUTOUTS);
}

fn packed_bytes_are_bytes(device: &Device) {
    for len in [1, 3, 4, 5, 255, 256] {
        let bytes: Vec<u8> = (0..len).map(|i| 255 - (i * 7 % 256) as u8).collect();
        let expected: Vec<f32> = bytes.iter().map(|&b| f32::from(b)).collect();
        for sent in [DeviceBytes::send_packed(&bytes, device), DeviceBytes::send(&bytes, device)] {
            assert_eq!(
                sent.into_floats().into_data().try_into_vec::<f32>().unwrap(),
                expected,
                "{len} bytes"
            );
        }
    }
}

#[test]
fn packed_bytes_equal_unpacked_bytes() {
    packed_bytes_are_bytes(&Device::flex());
}

#[cfg(feature = "wgpu")]
mod on_wgpu {
    use super::*;
    use ddp::device::testing::wgpu;

    /// Fewer cases than on the host: most of the time is spent compiling kernels.
    #[test]
    fn device_transform_equals_the_host() {
        let Some(device) = wgpu() else { return };
        compare(&device, &[[1, 5, 7], [3, 9, 6]], &[None, Some(4), Some(11)], &[None, Some(4)]);
    }

    #[test]
    fn sends_bytes_unchanged() {
        let Some(device) = wgpu() else { return };
        packed_bytes_are_bytes(&device);
    }
}

/// What changes bytes is applied before they are sent.
#[test]
fn crops_and_colours_of_a_device_are_those_of_the_host() {
    let (_, kind) = data::standard_kinds().into_iter().find(|(name, _)| *name == "shapes").unwrap();
    let grey = "augment = ['random-resized-crop', 'color-jitter', 'flip', 'cutout']\nbrightness = 0.4\ncontrast = 0.4\n";
    let all = &format!("{grey}saturation = 0.4\nhue = 0.1");
    for (channels, augment) in
        [(3, all.as_str()), (1, grey), (3, "augment = ['color-jitter', 'crop']\nhue = [0.5, 0.5]"), (3, "")]
    {
        let table = format!("train = 40\nsize = 16\nchannels = {channels}\n{augment}");
        let set = configure(&*kind, &table).unwrap().open().unwrap().train;
        let options =
            LoaderOptions { batch_size: 16, seed: 7, epoch: 2, start_batch: 0, workers: 0, prefetch: 3 };
        let load = |stored| Loader::new(set.clone(), (0..40).collect::<Vec<_>>(), options, stored).unwrap();
        let transform = DeviceTransform::new(load(true).transform().unwrap(), &Device::flex());
        for (sent, expected) in load(true).zip(load(false)) {
            let (sent, expected) = (sent.unwrap(), expected.unwrap());
            let (FieldData::Bytes(bytes), FieldData::Float(expected)) =
                (&sent.input.data, &expected.input.data)
            else {
                unreachable!()
            };
            let got = transform.apply(DeviceBytes::send(bytes, &Device::flex()), &sent.draws);
            let difference = largest_difference(&values(got), expected);
            assert!(difference <= 1e-6, "{difference} with {table}");
        }
    }
}

#[test]
fn stored_loader_returns_other_data_unchanged() {
    let (_, kind) = data::standard_kinds().into_iter().find(|(name, _)| *name == "random").unwrap();
    let set = configure(&*kind, "").unwrap().open().unwrap().train;
    let options =
        LoaderOptions { batch_size: 16, seed: 7, epoch: 2, start_batch: 0, workers: 0, prefetch: 3 };
    let batches = |stored| {
        let loader = Loader::new(set.clone(), (0..40).collect::<Vec<_>>(), options, stored).unwrap();
        assert!(loader.transform().is_none());
        loader.map(|batch| batch.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(batches(true), batches(false));
}
