//! A consistent copy of a run's state in host memory, which any thread can write.

use super::format::RunState;
use super::tensor::{Dtype, TensorData, TensorMap};
use base::error::{Error, ErrorKind, Result};
use std::sync::Arc;

/// What one checkpoint contains, except sizes and digests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The content of `state.json`.
    pub state: RunState,
    /// Parameters and buffers.
    pub model: TensorMap,
    /// The optimizer's state, by parameter.
    pub optimizer: TensorMap,
    /// Empty without averaged weights; the file is not written then.
    pub ema: TensorMap,
    /// Empty if communication hooks have no state; the file is not written then.
    pub comm_hook: TensorMap,
    /// What the model's use needs besides its weights; the file is not written without it.
    pub usage: Option<Arc<str>>,
}

impl Snapshot {
    /// Touches all memory of the tensors and destroys their values. Otherwise the first copy into it costs a page fault
    /// every 4 KiB.
    pub(super) fn touch(&mut self) {
        for map in [&mut self.model, &mut self.optimizer, &mut self.ema, &mut self.comm_hook] {
            map.all_bytes_mut().for_each(|bytes| bytes.fill(0));
        }
    }

    /// # Errors
    /// `ErrorKind::NonFinite` if a value is NaN or infinite: training can't continue from such a
    /// state.
    pub(super) fn check_finite(&self) -> Result<()> {
        let parts = [
            ("model", &self.model),
            ("optimizer", &self.optimizer),
            ("ema", &self.ema),
            ("comm_hook", &self.comm_hook),
        ];
        for (part, map) in parts {
            if let Some(tensor) = map.iter().find(|t| !is_finite(t)) {
                let (step, name) = (self.state.global_step, &tensor.name);
                let message = format!(
                    "after step {step}, {part} tensor `{name}` is not finite; no checkpoint was saved"
                );
                return Err(Error::new(ErrorKind::NonFinite, message)
                    .hint("try a lower learning rate; earlier checkpoints are unaffected"));
            }
        }
        Ok(())
    }
}

/// Whether all values are finite.
fn is_finite(tensor: &TensorData) -> bool {
    // Without early exit, blocks are checked with vector instructions.
    let finite = |block: &[f32]| block.iter().fold(true, |all, v| all & v.is_finite());
    match bytemuck::try_cast_slice::<u8, f32>(&tensor.bytes) {
        Ok(values) if tensor.dtype == Dtype::F32 => values.chunks(4096).all(finite),
        _ if tensor.dtype.is_float() => {
            let mut all = true;
            tensor.for_each_f64(|v| all &= v.is_finite());
            all
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_a_non_finite_value_in_any_part() {
        let values = |bad: Option<(usize, f32)>| {
            let mut values = vec![0.5f32; 10_000];
            bad.iter().for_each(|(at, value)| values[*at] = *value);
            TensorMap::from_tensors([TensorData::from_f32("fc.weight", vec![10_000], &values).unwrap()])
                .unwrap()
        };
        let of = |part: usize, bad: Option<(usize, f32)>| {
            let map = |i| values(bad.filter(|_| i == part));
            Snapshot {
                model: map(0),
                optimizer: map(1),
                ema: map(2),
                comm_hook: map(3),
                ..Snapshot::default()
            }
        };
        assert!(of(0, None).check_finite().is_ok());
        assert!(of(0, Some((0, f32::MAX))).check_finite().is_ok());
        for (part, name) in [(0, "model"), (1, "optimizer"), (2, "ema"), (3, "comm_hook")] {
            for bad in [(0, f32::NAN), (4095, f32::INFINITY), (9_999, f32::NEG_INFINITY)] {
                let e = of(part, Some(bad)).check_finite().unwrap_err();
                assert_eq!(e.kind, ErrorKind::NonFinite);
                assert!(e.message.contains(&format!("{name} tensor `fc.weight`")), "{e}");
            }
        }
    }

    #[test]
    fn every_float_type_is_checked_and_integers_are_not() {
        let map = |dtype, bytes: &[u8]| {
            let tensor = TensorData::new("t", dtype, vec![1], bytes.to_vec()).unwrap();
            Snapshot { model: TensorMap::from_tensors([tensor]).unwrap(), ..Snapshot::default() }
        };
        let is_fine = |dtype, bytes: &[u8]| map(dtype, bytes).check_finite().is_ok();
        assert!(is_fine(Dtype::I64, &u64::MAX.to_le_bytes()));
        assert!(!is_fine(Dtype::F64, &f64::NAN.to_le_bytes()));
        assert!(!is_fine(Dtype::Bf16, &half::bf16::INFINITY.to_le_bytes()));
        assert!(is_fine(Dtype::F16, &half::f16::MAX.to_le_bytes()));
    }
}
