//! ResNet-18, -34 and -50 with torchvision's structure and parameter names (He et al. 2015, arXiv:1512.03385).

use super::layers::{Affine, BatchNorm2d, Conv2d};
use super::ops::{add_relu, max_pool2d};
use super::{Input, Net};
use burn::module::Module;
use burn::tensor::module::adaptive_avg_pool2d;
use burn::tensor::{Device, Tensor};
use spec::choice;

choice! {
    /// The first layers of the network.
    Stem:
    /// 7x7 convolution of stride 2, then 3x3 max pooling, as in torchvision.
    ImageNet = "imagenet",
    /// 3x3 convolution of stride 1, no pooling, for images of about 32 pixels.
    Cifar = "cifar",
}

impl Stem {
    /// Pixels of the smallest maps, those of the last stage, for an image.
    pub fn least_norm_values(self, [_, height, width]: [usize; 3]) -> usize {
        let halvings = match self {
            Stem::ImageNet => 5,
            Stem::Cifar => 3,
        };
        let side = |side: usize| (0..halvings).fold(side, |side, _| side.div_ceil(2));
        side(height) * side(width)
    }
}

/// The number of blocks in each of the four stages, and whether they are bottlenecks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Blocks of each stage, from the largest maps to the smallest.
    pub blocks: [usize; 4],
    /// Blocks have three convolutions and four times as many output channels, instead of two convolutions.
    pub bottleneck: bool,
}

impl Depth {
    /// [`ModelSource::kept_values`](super::ModelSource::kept_values) of an image: the inputs of convolutions and of batch norms.
    pub fn kept_values(self, stem: Stem, [_, height, width]: [usize; 3]) -> usize {
        let half = |[height, width]: [usize; 2]| [height.div_ceil(2), width.div_ceil(2)];
        let pixels = |[height, width]: [usize; 2]| height * width;
        let mut map = [height, width];
        if stem == Stem::ImageNet {
            map = half(map);
        }
        // Before and behind the first norm, and behind the pooling.
        let mut kept = 2 * 64 * pixels(map);
        if stem == Stem::ImageNet {
            map = half(map);
            kept += 64 * pixels(map);
        }
        let mut inputs = 64;
        for (stage, count) in self.blocks.into_iter().enumerate() {
            let width = 64 << stage;
            let outputs = if self.bottleneck { 4 * width } else { width };
            for block in 0..count {
                let before = pixels(map);
                if stage > 0 && block == 0 {
                    map = half(map);
                }
                let first = if self.bottleneck { before } else { pixels(map) };
                // Before and behind the norms inside of the block, before its last, and behind its sum.
                kept += 2 * width * first + 2 * outputs * pixels(map);
                kept += if self.bottleneck { 2 * width * pixels(map) } else { 0 };
                kept += if inputs != outputs { outputs * pixels(map) } else { 0 };
                inputs = outputs;
            }
        }
        kept
    }

    /// Two basic blocks per stage.
    pub const RESNET18: Depth = Depth { blocks: [2, 2, 2, 2], bottleneck: false };
    /// 16 basic blocks.
    pub const RESNET34: Depth = Depth { blocks: [3, 4, 6, 3], bottleneck: false };
    /// 16 bottleneck blocks.
    pub const RESNET50: Depth = Depth { blocks: [3, 4, 6, 3], bottleneck: true };
}

/// torchvision's `BasicBlock` (two convolutions) or `Bottleneck` (three; with `conv3` and `bn3`).
#[derive(Module, Debug)]
struct Block {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    conv2: Conv2d,
    bn2: BatchNorm2d,
    conv3: Option<Conv2d>,
    bn3: Option<BatchNorm2d>,
    downsample: Option<(Conv2d, BatchNorm2d)>,
}

impl Block {
    fn new(inputs: usize, width: usize, stride: usize, bottleneck: bool, device: &Device) -> Self {
        let outputs = if bottleneck { width * 4 } else { width };
        let (first_kernel, first_stride) = if bottleneck { (1, 1) } else { (3, stride) };
        let second_stride = if bottleneck { stride } else { 1 };
        let shrinks = stride != 1 || inputs != outputs;
        Self {
            conv1: Conv2d::residual(inputs, width, first_kernel, first_stride, device),
            bn1: BatchNorm2d::new(width, device),
            conv2: Conv2d::residual(width, width, 3, second_stride, device),
            bn2: BatchNorm2d::new(width, device),
            conv3: bottleneck.then(|| Conv2d::residual(width, outputs, 1, 1, device)),
            bn3: bottleneck.then(|| BatchNorm2d::new(outputs, device)),
            downsample: shrinks.then(|| {
                (Conv2d::residual(inputs, outputs, 1, stride, device), BatchNorm2d::new(outputs, device))
            }),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let mut y = self.bn1.forward(self.conv1.forward(x.clone()), true);
        y = self.bn2.forward(self.conv2.forward(y), self.bn3.is_some());
        if let (Some(conv3), Some(bn3)) = (&self.conv3, &self.bn3) {
            y = bn3.forward(conv3.forward(y), false);
        }
        let identity = match &self.downsample {
            Some((conv, bn)) => bn.forward(conv.forward(x), false),
            None => x,
        };
        add_relu(y, identity)
    }
}

/// A residual network for images `[batch, channels, h, w]`; logits `[batch, classes]`.
#[derive(Module, Debug)]
pub struct ResNet {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    layer1: Vec<Block>,
    layer2: Vec<Block>,
    layer3: Vec<Block>,
    layer4: Vec<Block>,
    fc: Affine,
    pool: bool,
}

impl ResNet {
    /// Builds the network for images of `channels` channels on `device`, with torchvision's initial distributions.
    pub fn new(depth: Depth, stem: Stem, channels: usize, classes: usize, device: &Device) -> Self {
        let conv1 = match stem {
            Stem::ImageNet => Conv2d::residual(channels, 64, 7, 2, device),
            Stem::Cifar => Conv2d::residual(channels, 64, 3, 1, device),
        };
        let mut inputs = 64;
        let mut stage = |width: usize, count: usize, stride: usize| -> Vec<Block> {
            (0..count)
                .map(|i| {
                    let stride = if i == 0 { stride } else { 1 };
                    let block = Block::new(inputs, width, stride, depth.bottleneck, device);
                    inputs = if depth.bottleneck { width * 4 } else { width };
                    block
                })
                .collect()
        };
        let [a, b, c, d] = depth.blocks;
        let (layer1, layer2) = (stage(64, a, 1), stage(128, b, 2));
        let (layer3, layer4) = (stage(256, c, 2), stage(512, d, 2));
        Self {
            conv1,
            bn1: BatchNorm2d::new(64, device),
            layer1,
            layer2,
            layer3,
            layer4,
            fc: Affine::new(if depth.bottleneck { 2048 } else { 512 }, classes, device),
            pool: stem == Stem::ImageNet,
        }
    }
}

impl Net for ResNet {
    fn forward(&self, input: Input) -> Tensor<2> {
        let mut x = self.bn1.forward(self.conv1.forward(input.float::<4>()), true);
        if self.pool {
            x = max_pool2d(x, 3, 2, 1);
        }
        for block in self.layer1.iter().chain(&self.layer2).chain(&self.layer3).chain(&self.layer4) {
            x = block.forward(x);
        }
        let x: Tensor<2> = adaptive_avg_pool2d(x, [1, 1]).flatten(1, 3);
        self.fc.forward(x)
    }

    fn stays_f32(name: &str) -> bool {
        name.contains("bn") || name.contains("downsample.1.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn convolutions_and_norms_keep_their_inputs() {
        let stages = || (0..4).map(|stage| (64_usize << stage, 1024 >> (2 * stage)));
        // Before and behind both norms of two blocks each; a norm beside the first block of all stages but one.
        let of_stages: usize = stages().map(|(width, pixels)| 8 * width * pixels).sum();
        let beside: usize = stages().skip(1).map(|(width, pixels)| width * pixels).sum();
        let expected = 2 * 64 * 1024 + of_stages + beside;
        assert_eq!(Depth::RESNET18.kept_values(Stem::Cifar, [3, 32, 32]), expected);
        // The first convolution and the pooling halve the maps.
        let stem = 2 * 64 * 4096 + 64 * 1024;
        let large = Depth::RESNET18.kept_values(Stem::ImageNet, [3, 128, 128]);
        assert_eq!(large, stem + of_stages + beside);
        // A bottleneck's first convolution keeps the size of its input.
        let one = Depth { blocks: [0, 1, 0, 0], bottleneck: true };
        let stem = 2 * 64 * 1024;
        let expected = stem + 2 * 128 * 1024 + (2 * 128 + 3 * 512) * 256;
        assert_eq!(one.kept_values(Stem::Cifar, [3, 32, 32]), expected);
    }
}
