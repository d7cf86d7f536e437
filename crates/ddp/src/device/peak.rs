//! What devices can do.

use super::{ComputeDevice, Precision, cuda_devices};

/// Floating-point operations per second of dense matrix products of a rank's device: measured on the CPU, with all threads of the rank,
/// and by NVIDIA's data sheets on its cards. `None` of another card, and of f32 on one.
pub fn peak_flops_per_s(device: ComputeDevice, precision: Precision) -> Option<f64> {
    match device {
        ComputeDevice::Cpu => Some(kernels::peak::product_flops_per_s()),
        ComputeDevice::Cuda(index) => of_card(cuda_devices().ok()?.get(index)?, precision),
        ComputeDevice::Wgpu(_) => None,
    }
}

/// Parts of the driver's names, the more special ones first, with TFLOP/s in bf16 (f16 where `false`: Volta and Turing have no bf16) and
/// TF32.
const CARDS: [(&str, f64, f64, bool); 20] = [
    ("B200", 2250.0, 1100.0, true),
    ("H100 PCIe", 756.0, 378.0, true),
    ("H100 NVL", 835.0, 417.5, true),
    ("H100", 989.4, 494.7, true),
    ("H200 NVL", 835.5, 417.5, true),
    ("H200", 989.4, 494.7, true),
    ("GH200", 989.4, 494.7, true),
    ("H20", 148.0, 74.0, true),
    ("A100", 312.0, 156.0, true),
    ("A800", 312.0, 156.0, true),
    ("L40S", 362.1, 183.0, true),
    ("L40", 181.1, 90.5, true),
    ("L4", 121.0, 60.0, true),
    ("A40", 149.7, 74.8, true),
    ("A30", 165.0, 82.0, true),
    ("A10G", 70.0, 35.0, true),
    ("A10", 125.0, 62.5, true),
    ("RTX 4090", 165.2, 82.6, true),
    ("RTX 3090", 71.0, 35.6, true),
    ("T4", 65.0, 0.0, false),
];

fn of_card(name: &str, precision: Precision) -> Option<f64> {
    let words: Vec<&str> = name.split([' ', '-', '_']).collect();
    // Parts of a card, and cards that only share a name.
    if words.iter().any(|word| ["MIG", "Laptop", "Ti", "SUPER", "D"].contains(word)) {
        return None;
    }
    let is = |card: &str| {
        let card: Vec<&str> = card.split(' ').collect();
        words.windows(card.len()).any(|part| part == card)
    };
    let (_, half, tf32, has_bf16) = CARDS.into_iter().find(|(card, ..)| is(card))?;
    let tera = match precision {
        Precision::F32 => return None,
        Precision::Tf32 => tf32,
        Precision::Bf16 if !has_bf16 => return None,
        Precision::Bf16 | Precision::F16 => half,
    };
    (tera > 0.0).then_some(tera * 1e12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_known_by_the_names_of_the_driver() {
        let tera = |name, precision| of_card(name, precision).map(|flops| flops / 1e12);
        for (name, bf16) in [
            ("NVIDIA H100 80GB HBM3", Some(989.4)),
            ("NVIDIA H100 PCIe", Some(756.0)),
            ("NVIDIA H200", Some(989.4)),
            ("NVIDIA GH200 480GB", Some(989.4)),
            ("NVIDIA A100-SXM4-80GB", Some(312.0)),
            ("NVIDIA A10G", Some(70.0)),
            ("NVIDIA L4", Some(121.0)),
            ("NVIDIA L40S", Some(362.1)),
            ("NVIDIA GeForce RTX 4090", Some(165.2)),
            ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
            ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
            ("NVIDIA GeForce RTX 3090 Ti", None),
            ("Tesla T4", None),
            ("NVIDIA T400", None),
            ("Emulated", None),
        ] {
            assert_eq!(tera(name, Precision::Bf16), bf16, "{name}");
        }
        assert_eq!(tera("Tesla T4", Precision::F16), Some(65.0));
        assert_eq!(tera("NVIDIA A100-SXM4-40GB", Precision::Tf32), Some(156.0));
        assert_eq!(tera("NVIDIA A100-SXM4-40GB", Precision::F32), None);
    }

    #[test]
    fn the_cpu_is_measured() {
        assert!(peak_flops_per_s(ComputeDevice::Cpu, Precision::F32).is_some_and(|flops| flops > 0.0));
        assert_eq!(peak_flops_per_s(ComputeDevice::Wgpu(0), Precision::F32), None);
    }
}
