//! Warnings about values that are allowed but probably unintended.

use super::Plan;

impl Plan {
    /// Keys with a warning each.
    pub fn warnings(&self) -> Vec<(&'static str, String)> {
        self.small_rest().map(|why| ("dataset.val_split", why)).into_iter().collect()
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
}
