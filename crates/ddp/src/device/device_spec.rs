//! The devices that a spec can name.

use spec::{Syntax, syntax};
use std::fmt;

/// The device that a process computes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceSpec {
    /// CUDA if a CUDA device is found, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// This CUDA device; `None`: the device of the local rank.
    Cuda(Option<usize>),
    /// As `Cuda`, for the devices that wgpu finds (Vulkan, Metal, DX12).
    Wgpu(Option<usize>),
}

impl DeviceSpec {
    /// `auto`, `cpu`, `cuda`, `cuda:N`, `wgpu` or `wgpu:N`.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, index) = match text.split_once(':') {
            Some((kind, index)) => (kind, Some(read_index(index)?)),
            None => (text, None),
        };
        match kind {
            "cuda" => Some(DeviceSpec::Cuda(index)),
            "wgpu" => Some(DeviceSpec::Wgpu(index)),
            "auto" if index.is_none() => Some(DeviceSpec::Auto),
            "cpu" if index.is_none() => Some(DeviceSpec::Cpu),
            _ => None,
        }
    }

    /// The index, if one device is named.
    pub fn index(self) -> Option<usize> {
        match self {
            DeviceSpec::Auto | DeviceSpec::Cpu => None,
            DeviceSpec::Cuda(index) | DeviceSpec::Wgpu(index) => index,
        }
    }
}

fn read_index(text: &str) -> Option<usize> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|index| digits && *index < 4096)
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, index) = match self {
            DeviceSpec::Auto => ("auto", &None),
            DeviceSpec::Cpu => ("cpu", &None),
            DeviceSpec::Cuda(index) => ("cuda", index),
            DeviceSpec::Wgpu(index) => ("wgpu", index),
        };
        match index {
            Some(index) => write!(f, "{kind}:{index}"),
            None => f.write_str(kind),
        }
    }
}

impl Syntax for DeviceSpec {
    const EXPECTED: &'static str = "\"auto\", \"cpu\", \"cuda\", \"cuda:N\", \"wgpu\" or \"wgpu:N\"";
    const TYPES: &'static [&'static str] = &["string"];
    const WORDS: &'static [&'static str] = &["auto", "cpu", "cuda", "wgpu"];

    fn read(value: &toml::Value) -> Option<Self> {
        Self::parse(value.as_str()?)
    }

    fn write(&self) -> toml::Value {
        toml::Value::String(self.to_string())
    }
}

syntax!(DeviceSpec);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_parsed_as_in_pytorch() {
        assert_eq!(DeviceSpec::parse("cuda:3"), Some(DeviceSpec::Cuda(Some(3))));
        for name in ["auto", "cpu", "cuda", "cuda:0", "wgpu", "wgpu:12"] {
            assert_eq!(DeviceSpec::parse(name).map(|d| d.to_string()), Some(name.to_owned()));
        }
        for wrong in
            ["", "gpu", "cuda:", "cuda:-1", "cuda:+1", "cuda:x", "CPU", "cpu:0", "auto:1", "wgpu:0:1"]
        {
            assert_eq!(DeviceSpec::parse(wrong), None, "{wrong}");
        }
    }
}
