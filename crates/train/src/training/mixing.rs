//! Mixup and cutmix as torchvision's `transforms.v2.MixUp` and `CutMix`: each image of a micro-batch is mixed with the one
//! before it (the first with the last), and its loss with the loss against that one's label.

use super::feed::DeviceBatch;
use crate::models::{Input, Target};
use crate::tasks::{Batch, Lighter};
use base::error::{Error, Result};
use burn::tensor::Tensor;
use data::rng::{CounterRng, Stream};
use data::{FieldData, FieldFacts, FieldKind, SampleKey};
use rand_distr::{Beta, Distribution};
use std::ops::Range;

/// How the images of training are mixed. The numbers are the `alpha` of the distribution of lambda, Beta(alpha, alpha).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixing {
    /// `alpha` of mixup; `None`: no mixup.
    pub mixup: Option<f64>,
    /// With both, each micro-batch takes either with the same probability.
    pub cutmix: Option<f64>,
}

/// How one micro-batch is mixed.
#[derive(Clone, Debug, PartialEq)]
struct Mix {
    /// The weight of an image's own label.
    own: f64,
    /// The rows and columns that come from the other image; `None`: all pixels are mixed by weight.
    cut: Option<[Range<usize>; 2]>,
}

/// The batch, mixed if there is something to mix it by. `number` is that of the micro-batch in the run: ranks draw alike, and
/// a resumed run draws the same again.
pub(super) fn mixed(
    mixing: Option<Mixing>,
    batch: DeviceBatch,
    seed: u64,
    number: u64,
) -> (DeviceBatch, Option<Lighter>) {
    let Some(mixing) = mixing else { return (batch, None) };
    let DeviceBatch { batch, mut host } = batch;
    let images = batch.input.float::<4>();
    let [_, _, height, width] = images.dims();
    let mix = mixing.draw(seed, number, [height, width]);
    let images = mix.pixels(images);
    let device = images.device();
    let target = batch.target;
    let mut before = host.target.clone();
    if let FieldData::Index(labels) = &mut before.data {
        labels.rotate_right(1);
    }
    let other = Target::from_host(&before, host.len, &device);
    let (target, lighter) = if mix.own >= 0.5 {
        (target, Lighter { target: other, weight: 1.0 - mix.own })
    } else {
        // Accuracy is counted against the heavier label, as in torchvision's reference scripts.
        host.target = before;
        (other, Lighter { target, weight: mix.own })
    };
    // Only the standard task mixes, and it does not read further fields.
    let batch = Batch { input: Input::from_tensor(images), target, fields: batch.fields };
    (DeviceBatch { batch, host }, Some(lighter))
}

impl Mixing {
    fn draw(&self, seed: u64, number: u64, size: [usize; 2]) -> Mix {
        let mut rng = CounterRng::new(SampleKey { seed, epoch: 0, sample: number }, Stream::Mix);
        let cuts = match (self.mixup, self.cutmix) {
            (Some(_), Some(_)) => rng.below(2) == 1,
            (_, cutmix) => cutmix.is_some(),
        };
        let alpha = if cuts { self.cutmix } else { self.mixup }.unwrap_or(1.0);
        let own = match Beta::new(alpha, alpha) {
            Ok(beta) => beta.sample(&mut rng),
            Err(_) => 1.0, // no such alpha passes the range of its key
        };
        if !cuts {
            return Mix { own, cut: None };
        }
        let center = size.map(|length| rng.below(length as u32) as usize);
        Mix::cut(own, center, size)
    }

    /// Why this data can't be mixed; `None` if it can, or is not known yet.
    pub fn unfit(&self, input: Option<&FieldFacts>, target: Option<&FieldFacts>) -> Option<String> {
        if let Some(FieldFacts { shape, .. }) =
            input.filter(|input| input.kind != FieldKind::Float || input.shape.len() != 3)
        {
            let kind = input
                .map_or("", |input| if input.kind == FieldKind::Float { "" } else { " and are indices" });
            return Some(format!("mixes images, but the data set's inputs have the shape {shape:?}{kind}"));
        }
        match target? {
            FieldFacts { kind: FieldKind::Float, .. } => {
                Some("mixes classes, but the data set's targets are numbers".to_owned())
            }
            FieldFacts { shape, .. } if !shape.is_empty() => Some(format!(
                "mixes images of one class, but the data set's targets have the shape {shape:?}"
            )),
            _ => None,
        }
    }

    /// Checks this against the opened data set, whose facts may be unknown when the spec is read.
    ///
    /// # Errors
    /// Exit code 78: no images, or no classes.
    pub fn fits(&self, input: &FieldFacts, target: &FieldFacts) -> Result<()> {
        let Some(why) = self.unfit(Some(input), Some(target)) else { return Ok(()) };
        let name = if self.mixup.is_some() { "mixup" } else { "cutmix" };
        Err(Error::spec(format!("{name} {why}")).hint("remove `mixup` and `cutmix` from `[train]`"))
    }
}

impl Mix {
    /// Cutmix with the part `1 - lambda` of the image cut around a centre; the part that is inside is the weight.
    fn cut(lambda: f64, center: [usize; 2], size: [usize; 2]) -> Self {
        let half = 0.5 * (1.0 - lambda).sqrt();
        let span = |center: usize, length: usize| {
            let half = (half * length as f64) as usize;
            center.saturating_sub(half)..(center + half).min(length)
        };
        let cut = [span(center[0], size[0]), span(center[1], size[1])];
        let part = (cut[0].len() * cut[1].len()) as f64 / (size[0] * size[1]) as f64;
        Self { own: 1.0 - part, cut: Some(cut) }
    }

    fn pixels(&self, images: Tensor<4>) -> Tensor<4> {
        let [batch, channels, _, _] = images.dims();
        let before = images.clone().roll_dim(1, 0);
        match &self.cut {
            None => before * (1.0 - self.own) + images * self.own,
            Some([rows, columns]) if rows.is_empty() || columns.is_empty() => images,
            Some([rows, columns]) => {
                let place = [0..batch, 0..channels, rows.clone(), columns.clone()];
                images.slice_assign(place.clone(), before.slice(place))
            }
        }
    }
}

#[cfg(test)]
#[path = "mixing_tests.rs"]
mod tests;
