//! torchvision's `RandomResizedCrop`: a random window of the image, scaled to the size of the samples.

use super::resample::Window;
use super::rng::CounterRng;

/// How windows are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResizedCrop {
    /// Least and largest part of the image's area.
    pub scale: [f64; 2],
    /// Least and largest width divided by height.
    pub ratio: [f64; 2],
}

impl ResizedCrop {
    /// A window of an image of this height and width: the distribution of `RandomResizedCrop.get_params`.
    pub fn draw(&self, size: [usize; 2], rng: &mut CounterRng) -> Window {
        let [least, most] = self.ratio.map(|ratio| ratio.ln() as f32);
        for _ in 0..10 {
            let area = rng.between(self.scale[0] as f32, self.scale[1] as f32);
            let log_ratio = rng.between(least, most);
            if let Some([height, width]) = sides(size, area, log_ratio) {
                let mut shift = |room: usize| rng.below(room as u32 + 1) as usize;
                let (top, left) = (shift(size[0] - height), shift(size[1] - width));
                return Window { top, left, height, width };
            }
        }
        self.central(size)
    }

    /// The window after ten draws that did not fit: the largest in the centre with an allowed ratio.
    fn central(&self, [height, width]: [usize; 2]) -> Window {
        let ([least, most], own) = (self.ratio, width as f64 / height as f64);
        // An image of one row may round to no columns.
        let round = |x: f64| (x.round_ties_even() as usize).max(1);
        let [h, w] = match own {
            _ if own < least => [round(width as f64 / least), width],
            _ if own > most => [height, round(height as f64 * most)],
            _ => [height, width],
        };
        Window { top: (height - h) / 2, left: (width - w) / 2, height: h, width: w }
    }
}

/// Height and width of a window with this part of the area; `None` if it does not fit.
fn sides([height, width]: [usize; 2], area: f32, log_ratio: f32) -> Option<[usize; 2]> {
    let (area, ratio) = ((height * width) as f64 * f64::from(area), f64::from(log_ratio.exp()));
    // Python rounds halves to even.
    let [h, w] = [area / ratio, area * ratio].map(|square| square.sqrt().round_ties_even() as usize);
    ((1..=height).contains(&h) && (1..=width).contains(&w)).then_some([h, w])
}

#[cfg(test)]
#[path = "resized_crop_tests.rs"]
mod tests;
