//! Rotary positions as GGUF has them.

use super::file::{Metadata, Value};
use super::model::{Config, refused};
use base::error::Result;
use std::f64::consts::PI;

const ORIGINAL: &str = "original_max_position_embeddings";

/// The keys of the metadata.
///
/// # Errors
/// llama.cpp does not compute such positions.
pub(super) fn metadata(config: &Config<'_>, arch: &str) -> Result<Metadata> {
    let rope = config.table("rope_parameters")?;
    let key = |name: &str| format!("{arch}.rope.{name}");
    let mut found = vec![(key("freq_base"), Value::F32(rope.float("rope_theta")? as f32))];
    let kind = rope.text("rope_type")?;
    match kind {
        "default" => {}
        "llama3" if arch == "llama" => {}
        "linear" | "yarn" => {
            found.push((key("scaling.type"), kind.into()));
            found.push((key("scaling.factor"), Value::F32(rope.float("factor")? as f32)));
            if kind == "yarn" {
                found.extend(yarn(&rope, config, arch)?);
            }
        }
        _ => {
            let why = format!("llama.cpp has no `rope_type = \"{kind}\"` in its architecture `{arch}`");
            return Err(refused(why));
        }
    }
    Ok(found)
}

/// What `yarn` adds. llama.cpp reads none of the other keys for these architectures.
fn yarn(rope: &Config<'_>, config: &Config<'_>, arch: &str) -> Result<Metadata> {
    let set = |key: &str| rope.float(key).ok();
    for (key, fixed) in [("beta_fast", 32.0), ("beta_slow", 1.0)] {
        if let Some(found) = set(key).filter(|found| *found != fixed) {
            let why = format!("llama.cpp computes `yarn` with `{key}` = {fixed}, and the model has {found}");
            return Err(refused(why));
        }
    }
    if rope.flag("truncate") == Some(false) {
        return Err(refused("llama.cpp computes `yarn` with `truncate = true` only"));
    }
    let original = rope.count(ORIGINAL).or_else(|_| config.count("max_position_embeddings"))?;
    let mut found = vec![(format!("{arch}.rope.scaling.original_context_length"), Value::U32(original))];
    let factor = rope.float("factor")?;
    let scale = |m: f64| if factor <= 1.0 { 1.0 } else { 0.1 * m * factor.ln() + 1.0 };
    let used = |key: &str| set(key).filter(|m| *m != 0.0);
    let scaled = match (set("attention_factor"), used("mscale"), used("mscale_all_dim")) {
        (Some(factor), ..) => factor,
        (None, Some(m), Some(all)) => scale(m) / scale(all),
        _ => scale(1.0),
    };
    if scaled != scale(1.0) {
        // llama.cpp multiplies what it computes by it.
        let ratio = (scaled / scale(1.0)) as f32;
        found.push((format!("{arch}.rope.scaling.attn_factor"), Value::F32(ratio)));
    }
    Ok(found)
}

/// By what each frequency is divided, if that is not the same for all (`llama3`): the tensor `rope_freqs.weight`.
pub(super) fn factors(config: &Config<'_>, head_dim: u32) -> Result<Option<Vec<f32>>> {
    let rope = config.table("rope_parameters")?;
    if rope.text("rope_type")? != "llama3" {
        return Ok(None);
    }
    let [base, factor, low, high] =
        ["rope_theta", "factor", "low_freq_factor", "high_freq_factor"].map(|key| rope.float(key));
    let (base, factor, low, high) = (base?, factor?, low?, high?);
    let original = rope.count(ORIGINAL).or_else(|_| config.count("max_position_embeddings"))?;
    let of_pair = |pair: u32| {
        let frequency = base.powf(-2.0 * f64::from(pair) / f64::from(head_dim));
        let rotations = f64::from(original) * frequency / (2.0 * PI);
        let kept = ((rotations - low) / (high - low)).clamp(0.0, 1.0);
        (1.0 / ((1.0 - kept) / factor + kept)) as f32
    };
    Ok(Some((0..head_dim / 2).map(of_pair).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value as Json, json};

    fn of(rope: Json, arch: &str) -> Result<Metadata, String> {
        let config = json!({ "rope_parameters": rope, "max_position_embeddings": 64 });
        metadata(&Config(config.as_object().unwrap()), arch).map_err(|e| e.message)
    }

    #[test]
    fn scaling_is_said_or_refused() {
        let keys = |found: Metadata| -> Vec<String> {
            found
                .into_iter()
                .map(|(key, value)| format!("{} {value:?}", &key["llama.rope.".len()..]))
                .collect()
        };
        let plain = json!({ "rope_type": "default", "rope_theta": 1e4 });
        assert_eq!(keys(of(plain, "llama").unwrap()), ["freq_base F32(10000.0)"]);
        let yarn = |more: Json| {
            let mut table = json!({ "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0 });
            table.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            of(table, "llama")
        };
        let plain = yarn(json!({ "beta_fast": 32.0, ORIGINAL: 16 })).unwrap();
        assert_eq!(
            keys(plain)[1..],
            [
                "scaling.type String(\"yarn\")",
                "scaling.factor F32(4.0)",
                "scaling.original_context_length U32(16)"
            ]
        );
        let scaled = keys(yarn(json!({ "attention_factor": 1.25 })).unwrap());
        // 1.25 / (0.1 ln 4 + 1)
        assert_eq!(
            scaled[3..],
            ["scaling.original_context_length U32(64)", "scaling.attn_factor F32(1.0978111)"]
        );
        assert!(yarn(json!({ "beta_fast": 16.0 })).unwrap_err().contains("`beta_fast` = 32"));
        assert!(yarn(json!({ "truncate": false })).unwrap_err().contains("truncate"));
        let dynamic = json!({ "rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0 });
        assert!(of(dynamic, "llama").unwrap_err().contains("dynamic"));
        let llama3 = json!({ "rope_type": "llama3", "rope_theta": 1e4 });
        assert!(of(llama3.clone(), "llama").is_ok() && of(llama3, "qwen2").is_err());
    }

    #[test]
    fn low_frequencies_of_llama3_are_divided() {
        let rope = json!({
            "rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, ORIGINAL: 8192
        });
        let config = json!({ "rope_parameters": rope });
        let found = factors(&Config(config.as_object().unwrap()), 128).unwrap().unwrap();
        assert_eq!((found.len(), found[0], found[63]), (64, 1.0, 8.0));
        assert!(found.windows(2).all(|pair| pair[0] <= pair[1]));
        // By `LlamaModel.generate_extra_tensors` of llama.cpp's converter.
        assert!((found[30] - 1.553_414_6).abs() < 1e-5, "{}", found[30]);
    }
}
