//! Warnings about values that are allowed but probably unintended.

use super::Plan;

/// Their updates have matrix products, or norms and means of whole tensors, whose rounding depends on the kernel.
const OF_WHOLE_TENSORS: [&str; 4] = ["muon", "lamb", "lars", "adafactor"];

impl Plan {
    /// Keys with a warning each.
    pub fn warnings(&self) -> Vec<(&'static str, String)> {
        let memory = self.memory_warning().map(|why| ("model", why));
        self.warnings_of_values().into_iter().chain(memory).collect()
    }

    /// Without that about the memory, which a run gives before it reads any data.
    pub fn warnings_of_values(&self) -> Vec<(&'static str, String)> {
        let small_rest = self.small_rest().map(|why| ("dataset.val_split", why));
        let unlike = self.unlike_replicas().map(|why| ("distributed.check_replicas", why));
        small_rest.into_iter().chain(unlike).collect()
    }

    fn unlike_replicas(&self) -> Option<String> {
        let name = self.optimizer.name.as_str();
        let checked = !self.replicas.check_replicas.is_never() && self.world.world_size > 1;
        (checked && self.may_be_on_device() && OF_WHOLE_TENSORS.contains(&name)).then(|| {
            format!("with `{name}` each device may choose a kernel that rounds differently, which the check takes for corruption")
        })
    }

    fn small_rest(&self) -> Option<String> {
        let split = self.values.iter().find(|v| v.key == "dataset.val_split")?.value.as_float()?;
        let left = 100.0 * (1.0 - split);
        (split > 0.5).then(|| format!("{split} leaves {left:.1} % of the samples for training"))
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::testing::resolved;
    use crate::registry::Registry;

    #[test]
    fn warns_about_a_split_with_few_training_samples() {
        let plan = |split: &str| {
            let spec = format!(
                "name = \"a\"\nbatch_size = 8\nmodel.name = \"linear\"\noptimizer.name = \"sgd\"\n\
                 [dataset]\nname = \"random\"\nval_split = {split}\n"
            );
            resolved(&Registry::standard(), &spec, &[], 1).unwrap()
        };
        for usual in ["0.5", "0.1", "0"] {
            assert_eq!(plan(usual).warnings(), []);
            assert!(!plan(usual).text().contains("Warnings"));
        }
        let most = plan("0.99");
        assert_eq!(
            most.warnings(),
            [("dataset.val_split", "0.99 leaves 1.0 % of the samples for training".to_owned())]
        );
        assert!(
            most.text().contains("\nWarnings\n  dataset.val_split  0.99 leaves 1.0 %"),
            "{}",
            most.text()
        );
        assert_eq!(most.json()["warnings"][0][0], "dataset.val_split");
    }
    #[test]
    fn warns_about_a_check_of_replicas_that_may_differ_without_a_fault() {
        let warned = |world: usize, sets: &[&str]| {
            let spec = "name = \"a\"\nbatch_size = 8\nmodel.name = \"linear\"\ndataset.name = \"random\"\n";
            let sets = [&["distributed.check_replicas=\"2 steps\""], sets].concat();
            !resolved(&Registry::standard(), spec, &sets, world).unwrap().warnings().is_empty()
        };
        let (muon, wgpu) = ("optimizer.name=\"muon\"", "device=\"wgpu\"");
        assert!(warned(2, &[muon, wgpu]));
        assert!(!warned(1, &[muon, wgpu]));
        assert!(!warned(2, &[muon, "device=\"cpu\""]));
        assert!(!warned(2, &["optimizer.name=\"adamw\"", wgpu]));
        assert!(!warned(2, &[muon, wgpu, "distributed.check_replicas=\"never\""]));
    }
}
