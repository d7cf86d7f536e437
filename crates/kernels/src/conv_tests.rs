//! Convolutions compared with their definition in f64, over many shapes; equal bits with any number of threads and in
//! every run.

use super::super::testing::noise;
use super::*;
use proptest::prelude::*;

/// Calls `f(index of output, index of input, index of weight)` for every product of the convolution.
fn each_product(shape: &ConvShape, mut f: impl FnMut(usize, usize, usize)) {
    let s = shape;
    let (oh, ow) = (s.out_height(), s.out_width());
    for n in 0..s.batch {
        for o in 0..s.out_channels {
            for p in 0..oh * ow {
                let y = (n * s.out_channels + o) * oh * ow + p;
                for c in 0..s.in_channels {
                    for k in 0..s.kernel[0] * s.kernel[1] {
                        let row = (p / ow * s.stride[0] + k / s.kernel[1]).checked_sub(s.padding[0]);
                        let column = (p % ow * s.stride[1] + k % s.kernel[1]).checked_sub(s.padding[1]);
                        let (Some(row), Some(column)) = (row, column) else { continue };
                        if row < s.height && column < s.width {
                            let x = ((n * s.in_channels + c) * s.height + row) * s.width + column;
                            f(y, x, (o * s.in_channels + c) * s.kernel[0] * s.kernel[1] + k);
                        }
                    }
                }
            }
        }
    }
}

/// Compares with the f64 sums, with a tolerance for f32 sums of `magnitude` (the sum of absolute products).
fn close(what: &str, shape: &ConvShape, got: &[f32], expected: &[(f64, f64)]) {
    for (i, (&got, &(sum, magnitude))) in got.iter().zip(expected).enumerate() {
        let error = (f64::from(got) - sum).abs();
        assert!(error <= 2e-6 * magnitude + 1e-7, "{what}[{i}]: {got}, not {sum}, for {shape:?}");
    }
}

fn results(shape: &ConvShape, parallelism: usize) -> [Vec<f32>; 4] {
    let (x, w, dy) =
        (noise(shape.input_len(), 1), noise(shape.weight_len(), 2), noise(shape.output_len(), 3));
    let bias = noise(shape.out_channels, 4);
    // The previous content must not matter.
    let mut out = vec![f32::NAN; shape.output_len()];
    let mut dx = vec![f32::NAN; shape.input_len()];
    let mut dw = vec![f32::NAN; shape.weight_len()];
    let mut db = vec![f32::NAN; shape.out_channels];
    forward(shape, &x, &w, Some(&bias), &mut out, parallelism);
    backward_input(shape, &w, &dy, &mut dx, parallelism);
    backward_weight(shape, &x, &dy, &mut dw, parallelism);
    backward_bias(shape, &dy, &mut db);
    [out, dx, dw, db]
}

fn check(shape: &ConvShape) {
    let (x, w, dy) =
        (noise(shape.input_len(), 1), noise(shape.weight_len(), 2), noise(shape.output_len(), 3));
    let bias = noise(shape.out_channels, 4);
    let pixels = shape.out_pixels().max(1);
    let start = |i: usize| f64::from(bias[i / pixels % shape.out_channels]);
    let mut out: Vec<(f64, f64)> = (0..shape.output_len()).map(|i| (start(i), start(i).abs())).collect();
    let mut dx = vec![(0.0, 0.0); shape.input_len()];
    let mut dw = vec![(0.0, 0.0); shape.weight_len()];
    let add = |to: &mut (f64, f64), a: f32, b: f32| {
        let product = f64::from(a) * f64::from(b);
        to.0 += product;
        to.1 += product.abs();
    };
    each_product(shape, |iy, ix, iw| {
        add(&mut out[iy], x[ix], w[iw]);
        add(&mut dx[ix], dy[iy], w[iw]);
        add(&mut dw[iw], dy[iy], x[ix]);
    });
    let [got_out, got_dx, got_dw, got_db] = results(shape, 1);
    close("out", shape, &got_out, &out);
    close("dx", shape, &got_dx, &dx);
    close("dw", shape, &got_dw, &dw);
    let mut db = vec![(0.0, 0.0); shape.out_channels];
    dy.iter().enumerate().for_each(|(i, &dy)| add(&mut db[i / pixels % shape.out_channels], dy, 1.0));
    close("db", shape, &got_db, &db);
    let bits = |all: &[Vec<f32>; 4]| all.concat().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    let serial = bits(&[got_out, got_dx, got_dw, got_db]);
    for parallelism in [1, 2, 3] {
        assert_eq!(serial, bits(&results(shape, parallelism)), "bits with {parallelism} threads: {shape:?}");
    }
}

fn shape(
    batch: usize,
    channels: [usize; 2],
    size: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
) -> ConvShape {
    ConvShape {
        batch,
        in_channels: channels[0],
        height: size,
        width: size,
        out_channels: channels[1],
        kernel: [kernel; 2],
        stride: [stride; 2],
        padding: [padding; 2],
    }
}

#[test]
fn the_layers_of_a_resnet() {
    for batch in [1, 7, 40] {
        check(&shape(batch, [3, 20], 16, 7, 2, 3));
        check(&shape(batch, [3, 16], 9, 3, 1, 1));
        check(&shape(batch, [16, 24], 8, 3, 1, 1));
        check(&shape(batch, [32, 16], 8, 3, 2, 1));
        check(&shape(batch, [16, 32], 7, 1, 2, 0));
        check(&shape(batch, [17, 19], 4, 1, 1, 0));
        check(&shape(batch, [64, 96], 2, 3, 1, 1));
        check(&shape(batch, [64, 32], 2, 3, 2, 1));
        check(&shape(batch, [72, 70], 1, 3, 1, 1));
    }
    // Several blocks of images, the last one partly filled; several rounds of held blocks.
    check(&shape(150, [16, 8], 5, 3, 1, 1));
    check(&shape(150, [3, 8], 40, 3, 4, 1));
}

#[test]
fn maps_smaller_than_the_kernel() {
    check(&shape(3, [4, 5], 2, 5, 1, 2));
    check(&shape(3, [4, 5], 1, 7, 2, 3));
    // No output at all, and an output that meets only padding.
    check(&shape(3, [4, 5], 2, 5, 1, 0));
    check(&shape(3, [20, 5], 1, 1, 1, 1));
    check(&shape(0, [4, 5], 4, 3, 1, 1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_shape(
        batch in 1usize..36, channels in [1usize..21, 1usize..21], size in [1usize..9, 1usize..9],
        kernel in [1usize..6, 1usize..6], stride in [1usize..4, 1usize..4], padding in [0usize..4, 0usize..4],
    ) {
        check(&ConvShape {
            batch, in_channels: channels[0], out_channels: channels[1], height: size[0], width: size[1], kernel, stride,
            padding,
        });
    }
}
