//! torchvision's `ColorJitter` on planes of bytes. Each step is that of `torchvision.transforms.v2.functional` for uint8
//! tensors, in f32 and cut down to bytes.

use super::rng::CounterRng;

/// The least and the largest factor of each step; `None` leaves it out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ColorJitter {
    pub brightness: Option<[f64; 2]>,
    pub contrast: Option<[f64; 2]>,
    pub saturation: Option<[f64; 2]>,
    /// In turns of the colour circle, -0.5 to 0.5.
    pub hue: Option<[f64; 2]>,
}

/// A step with its factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    Brightness(f32),
    Contrast(f32),
    Saturation(f32),
    Hue(f32),
}

impl ColorJitter {
    /// The steps for one image, in random order.
    pub fn draw(&self, rng: &mut CounterRng) -> Vec<Step> {
        let mut draw = |step: fn(f32) -> Step, range: Option<[f64; 2]>| {
            range.map(|[from, to]| step(rng.between(from as f32, to as f32)))
        };
        let mut steps = [
            draw(Step::Brightness, self.brightness),
            draw(Step::Contrast, self.contrast),
            draw(Step::Saturation, self.saturation),
            draw(Step::Hue, self.hue),
        ];
        for i in (1..steps.len()).rev() {
            steps.swap(i, rng.below(i as u32 + 1) as usize);
        }
        steps.into_iter().flatten().collect()
    }
}

impl Step {
    /// Changes an image of one channel, whose hue and saturation stay as in torchvision, or of three.
    pub fn apply(self, pixels: &mut [u8], channels: usize) {
        let plane = pixels.len() / channels;
        let (red, rest) = pixels.split_at_mut(plane);
        let (green, blue) = rest.split_at_mut(plane.min(rest.len()));
        let colours = || red.iter().zip(&*green).zip(&*blue).map(|((r, g), b)| [*r, *g, *b]);
        match self {
            Step::Brightness(factor) => {
                map(pixels, |p| (f32::from(p) * factor).clamp(0.0, 255.0) as u8);
            }
            Step::Contrast(factor) => {
                let sum: u64 = match channels {
                    1 => red.iter().map(|p| u64::from(*p)).sum(),
                    _ => colours().map(|rgb| grey(rgb) as u64).sum(),
                };
                let mean = sum as f32 / plane as f32;
                map(pixels, |p| blend(p, mean, factor));
            }
            Step::Saturation(_) | Step::Hue(_) if channels == 1 => {}
            Step::Saturation(factor) => recolour([red, green, blue], |rgb| {
                let grey = grey(rgb);
                rgb.map(|p| blend(p, grey, factor))
            }),
            Step::Hue(turn) => recolour([red, green, blue], |rgb| turned(rgb, turn)),
        }
    }
}

/// Applies a function of single values.
fn map(pixels: &mut [u8], value: impl Fn(u8) -> u8) {
    let table: [u8; 256] = std::array::from_fn(|p| value(p as u8));
    pixels.iter_mut().for_each(|p| *p = table[usize::from(*p)]);
}

fn recolour([red, green, blue]: [&mut [u8]; 3], colour: impl Fn([u8; 3]) -> [u8; 3]) {
    for ((r, g), b) in red.iter_mut().zip(green).zip(blue) {
        [*r, *g, *b] = colour([*r, *g, *b]);
    }
}

/// `a * b + c`, rounded once, as PyTorch's kernels compute it. Products of f32 are exact in f64.
fn fused(a: f32, b: f32, c: f32) -> f32 {
    (f64::from(a) * f64::from(b) + f64::from(c)) as f32
}

/// The whole part of the luminance.
fn grey(rgb: [u8; 3]) -> f32 {
    let [r, g, b] = rgb.map(f32::from);
    fused(b, 0.114, fused(g, 0.587, r * 0.2989)).floor()
}

/// `factor` of the pixel and `1 - factor` of `other`.
fn blend(pixel: u8, other: f32, factor: f32) -> u8 {
    let rest = (1.0 - f64::from(factor)) as f32;
    fused(other, rest, f32::from(pixel) * factor).clamp(0.0, 255.0) as u8
}

/// The colour with its hue turned: to HSV as in Pillow, but in f32, and back.
fn turned(rgb: [u8; 3], turn: f32) -> [u8; 3] {
    let [r, g, b] = rgb.map(|p| f32::from(p) * (1.0 / 255.0) as f32);
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    let range = most - least;
    let (s, divisor) = if range == 0.0 { (0.0, 1.0) } else { (range / most, range) };
    let [rc, gc, bc] = [r, g, b].map(|c| (most - c) / divisor);
    let sixth = match most {
        _ if most == r => bc - gc,
        _ if most == g => rc + 2.0 - bc,
        _ => gc + 4.0 - rc,
    };
    let hue = (sixth * (1.0 / 6.0) as f32 + 1.0) % 1.0;
    let hue = match (hue + turn) % 1.0 {
        below if below < 0.0 => below + 1.0,
        within => within,
    };
    let at = hue * 6.0;
    let sector = at.floor();
    let (part, rest) = (s * (at - sector), 1.0 - s);
    let [p, q, t] = [rest, 1.0 - part, part + rest].map(|x| (x * most).clamp(0.0, 1.0));
    // A negative remainder may have been rounded to a whole turn.
    let rgb = match sector as u32 % 6 {
        0 => [most, t, p],
        1 => [q, most, p],
        2 => [p, most, t],
        3 => [p, q, most],
        4 => [t, p, most],
        _ => [most, p, q],
    };
    rgb.map(|c| (c * 255.999) as u8)
}

#[cfg(test)]
#[path = "color_jitter_tests.rs"]
mod tests;
