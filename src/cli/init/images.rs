//! `ddp-run init image-folder DIR`: a spec for the images of a folder, by class or with a table.

use super::{Output, commented, foreign, image_table, place, run_name, utf8};
use base::error::Result;
use data::{ImageSurvey, survey_images};
use std::path::PathBuf;

/// PNG and JPEG images, a folder for each class or a table of names and labels: counts classes, and examines sizes
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The folder of images: DIR/train/CLASS/… with DIR/val/CLASS/…, or DIR/CLASS/…, or DIR/train.csv with the images in DIR
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Classes that are listed.
const MAX_LISTED: usize = 40;
/// Images with a shorter side are small: an early pooling would leave little of them.
const SMALL: usize = 64;

/// The spec, and what it took from the images.
pub fn proposal(args: &Args) -> Result<(String, String)> {
    if let Some(found) = image_table::proposal(&args.dir)? {
        return Ok(found);
    }
    let root = utf8(&args.dir)?;
    let found = survey_images(&args.dir)?;
    let text = spec(&run_name(&args.dir), root, &found, dataset(root, &found));
    Ok((text, about(&found)))
}

/// A summary of what was found.
pub fn about(found: &ImageSurvey) -> String {
    format!(" ({})", images(found))
}

/// How many images there are of what.
fn images(found: &ImageSurvey) -> String {
    match found.classes.len() {
        0 => format!("{} images, each with a number", found.images),
        classes => format!("{} images of {classes} classes", found.images),
    }
}

/// The size to which images are scaled.
fn image_size(side: usize) -> usize {
    match side {
        0..=SMALL => side.next_multiple_of(8).max(16),
        _ => (side / 32 * 32).min(224),
    }
}

/// A ResNet-18 on images, which `dataset` names.
pub fn spec(name: &str, root: &str, found: &ImageSurvey, dataset: Vec<String>) -> String {
    let (batch, epochs) = if found.images < 1000 { (8, 20) } else { (32, 20) };
    let mut lines = vec![
        format!("# ResNet-18 on the images in {}: {}.", foreign(root), images(found)),
        super::WHERE_TO_LOOK.to_owned(),
    ];
    if !found.classes.is_empty() {
        lines.extend(classes(found));
    }
    lines.extend(super::head(name, epochs, batch));
    lines.extend(["[model]".to_owned(), commented("name = \"resnet18\"", "or resnet34, resnet50, vit, cnn")]);
    lines.push(match found.side <= SMALL {
        true => commented("stem = \"cifar\"", "3x3, without pooling: the images are small"),
        false => commented(
            "# pretrained = \"w.safetensors\"",
            "PyTorch weights to start from: better with few images",
        ),
    });
    lines.push(String::new());
    lines.extend(dataset);
    let best = if found.classes.is_empty() { "val.r2" } else { "val.accuracy" };
    let processes = ("\"devices\"", "one process a GPU; without any, one");
    lines.extend(super::tail("lr = 1e-3\nweight_decay = 0.05", best, processes));
    lines.join("\n") + "\n"
}

/// A line for each class, and one if they are far from equal.
fn classes(found: &ImageSurvey) -> Vec<String> {
    let mut lines = vec!["# Training images by class:".to_owned()];
    let class = |(name, count): &(String, usize)| format!("#   {}: {count}", foreign(name));
    lines.extend(found.classes.iter().take(MAX_LISTED).map(class));
    if let Some(more) = found.classes.len().checked_sub(MAX_LISTED).filter(|more| *more > 0) {
        lines.push(format!("#   … and {more} more classes"));
    }
    let counts = || found.classes.iter().map(|(_, count)| *count);
    let (few, many) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
    if many > 10 * few {
        lines.push(format!(
            "# The largest class has {} times the images of the smallest: accuracy may say little.",
            many / few.max(1)
        ));
    }
    lines
}

fn dataset(root: &str, found: &ImageSurvey) -> Vec<String> {
    let (read, bad) = found.read;
    let mut lines = vec!["[dataset]".to_owned(), "name = \"image-folder\"".to_owned()];
    lines.push(place("root", root));
    lines.extend(sizes(found));
    if bad > 0 {
        let why = format!("{bad} of {read} images that were read can't be decoded");
        lines.push(commented("bad_images = \"skip\"", &why));
    }
    match (found.val, found.test) {
        (Some(images), _) => {
            lines.push(format!("# Validation: the {images} images of the validation folder."))
        }
        (None, Some(images)) => lines.push(format!(
            "# Validation: the {images} test images; `val_split = 0.2` takes a part of training instead."
        )),
        (None, None) => {
            lines.push(commented("val_split = 0.2", "part of the images for validation, drawn at random"))
        }
    }
    if let Some(images) = found.test {
        lines.push(format!("# `ddp-run eval --split test` measures the {images} images of the test folder."));
    }
    lines.extend(hints());
    lines
}

/// The lines of `[dataset]` about the size and colour of images.
pub fn sizes(found: &ImageSurvey) -> Vec<String> {
    let (size, (read, _)) = (image_size(found.side), found.read);
    let why = format!("the shorter side of most is {} pixels", found.side);
    let mut lines = vec![commented(&format!("image_size = {size}"), &why)];
    if found.grey {
        lines.push(commented("channels = 1", &format!("the {read} images that were read are grey")));
    }
    lines
}

/// The lines of `[dataset]` about what else images may have.
pub fn hints() -> [String; 2] {
    [
        commented(
            "# augment = [\"flip\"]",
            "or random-resized-crop, color-jitter: where the class stays the same",
        ),
        commented("workers = 4", "threads that decode images, per process"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_scaled_to_sizes_that_networks_take() {
        for (side, size) in
            [(1, 16), (28, 32), (32, 32), (64, 64), (65, 64), (100, 96), (224, 224), (3000, 224)]
        {
            assert_eq!(image_size(side), size, "{side}");
        }
    }
}
