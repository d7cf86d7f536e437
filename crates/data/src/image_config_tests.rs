//! The keys of images that need or exclude each other.

use super::*;
use spec::JobTree;

fn read(lines: &str) -> Result<Augment, String> {
    read_of(3, lines)
}

fn read_of(channels: usize, lines: &str) -> Result<Augment, String> {
    let usual = ChannelStats { mean: [0.5; 3], std: [0.5; 3] };
    let job = JobTree::parse("job.toml", &format!("[dataset]\n{lines}\n"), &[]);
    let read =
        job.read(|root| root.table("dataset").map(|mut f| TransformOptions::read(&mut f, channels, usual)));
    read.map(|(options, _)| options.unwrap().augment).map_err(|problems| problems.to_string())
}

#[test]
fn ranges_are_written_as_in_torchvision() {
    let jitter = |lines: &str| {
        read(&format!("augment = [\"color-jitter\"]\n{lines}")).map(|augment| augment.color_jitter.unwrap())
    };
    let all = jitter("brightness = 0.25\ncontrast = [0.5, 3]\nsaturation = 2\nhue = 0.125").unwrap();
    let expected = ColorJitter {
        brightness: Some([0.75, 1.25]),
        contrast: Some([0.5, 3.0]),
        saturation: Some([0.0, 3.0]),
        hue: Some([-0.125, 0.125]),
    };
    assert_eq!(all, expected);
    assert_eq!(jitter("hue = [-0.5, 0.25]").unwrap().hue, Some([-0.5, 0.25]));
    assert_eq!(jitter("brightness = 0\nhue = 0").unwrap(), ColorJitter::default());
    for wrong in ["brightness = -0.1", "contrast = [-0.5, 1]", "saturation = [2, 1]", "saturation = [1]"] {
        assert!(jitter(wrong).unwrap_err().contains("at least 0"), "{wrong}");
    }
    for wrong in ["hue = 0.6", "hue = [-0.6, 0]"] {
        assert!(jitter(wrong).unwrap_err().contains("from -0.5 to 0.5"), "{wrong}");
    }
}

#[test]
fn colours_of_grey_images_are_not_changed() {
    let jitter = |lines: &str| read_of(1, &format!("augment = [\"color-jitter\"]\n{lines}"));
    assert!(jitter("contrast = 0.5").unwrap().color_jitter.unwrap().contrast.is_some());
    for line in ["hue = 0.1", "contrast = 0.5\nsaturation = 0.1"] {
        assert!(jitter(line).unwrap_err().contains("has no effect on grey images"), "{line}");
    }
    let nothing = jitter("").unwrap_err();
    assert!(nothing.contains("changes nothing without `brightness` or `contrast`"), "{nothing}");
    assert!(read("augment = [\"color-jitter\"]").unwrap_err().contains("`contrast`, `saturation` or `hue`"));
}

#[test]
fn windows_have_the_ranges_of_torchvision_unless_set() {
    let crop = |lines: &str| read(&format!("augment = [\"random-resized-crop\"]\n{lines}"));
    let usual = ResizedCrop { scale: [0.08, 1.0], ratio: [3.0 / 4.0, 4.0 / 3.0] };
    assert_eq!(crop("").unwrap().resized_crop, Some(usual));
    let own = crop("crop_scale = [0.5, 0.5]\ncrop_ratio = [1, 2]").unwrap().resized_crop;
    assert_eq!(own, Some(ResizedCrop { scale: [0.5, 0.5], ratio: [1.0, 2.0] }));
    assert!(crop("crop_ratio = [2, 1]").unwrap_err().contains("the smaller number first"));
}
