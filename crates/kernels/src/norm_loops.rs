//! The inner loops of batch normalisation, over one task's part of one image. Constants are repeated per element (see
//! [`super::norm`]), so the loops need no channel index.

use super::wide::wide;

wide! {
    /// `sum += x`
    pub(super) fn add(x: &[f32], sum: &mut [f32]) {
        for (sum, &x) in sum.iter_mut().zip(x) {
            *sum += x;
        }
    }
}

wide! {
    pub(super) fn add_squares(x: &[f32], centre: &[f32], sum: &mut [f32]) {
        for ((sum, &x), &centre) in sum.iter_mut().zip(x).zip(centre) {
            *sum += (x - centre) * (x - centre);
        }
    }
}

wide! {
    pub(super) fn normalise(x: &[f32], centre: &[f32], scale: &[f32], bias: &[f32], relu: bool, out: &mut [f32]) {
        let constants = centre.iter().zip(scale).zip(bias);
        if relu {
            for ((out, &x), ((&centre, &scale), &bias)) in out.iter_mut().zip(x).zip(constants) {
                let value = (x - centre) * scale + bias;
                *out = if value <= 0.0 { 0.0 } else { value };
            }
        } else {
            for ((out, &x), ((&centre, &scale), &bias)) in out.iter_mut().zip(x).zip(constants) {
                *out = (x - centre) * scale + bias;
            }
        }
    }
}

wide! {
    pub(super) fn add_products(dy: &[f32], x: &[f32], centre: &[f32], sum: &mut [f32], product: &mut [f32]) {
        let sums = sum.iter_mut().zip(product);
        for ((sum, product), ((&dy, &x), &centre)) in sums.zip(dy.iter().zip(x).zip(centre)) {
            *sum += dy;
            *product += dy * (x - centre);
        }
    }
}

wide! {
    pub(super) fn add_products_relu(
        dy: &[f32], out: &[f32], x: &[f32], centre: &[f32], sum: &mut [f32], product: &mut [f32],
    ) {
        let sums = sum.iter_mut().zip(product);
        for ((sum, product), (((&dy, &out), &x), &centre)) in sums.zip(dy.iter().zip(out).zip(x).zip(centre)) {
            let dy = if out <= 0.0 { 0.0 } else { dy };
            *sum += dy;
            *product += dy * (x - centre);
        }
    }
}

wide! {
    pub(super) fn mask(dy: &[f32], out: &[f32], dx: &mut [f32]) {
        for ((dx, &dy), &out) in dx.iter_mut().zip(dy).zip(out) {
            *dx = if out <= 0.0 { 0.0 } else { dy };
        }
    }
}

wide! {
    pub(super) fn input_gradient(x: &[f32], centre: &[f32], constant: &[f32], slope: &[f32], scale: &[f32], dx: &mut [f32]) {
        let constants = constant.iter().zip(slope).zip(scale);
        for (((dx, &x), &centre), ((&constant, &slope), &scale)) in dx.iter_mut().zip(x).zip(centre).zip(constants) {
            *dx = (*dx - constant - (x - centre) * slope) * scale;
        }
    }
}
