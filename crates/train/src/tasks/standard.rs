//! The tasks that ship with ddp-run: the standard one of [`super::rows`] under the names of what it is for.

use super::StandardLoss;
use super::config::TaskKind;
use base::named;
use data::{FieldFacts, FieldKind};
use schemars::JsonSchema;
use serde::Deserialize;
use spec::Fields;

named! {
    /// A name of the standard task. A spec without `[task]` has it without a name, and the same results.
    pub enum StandardTask {
        Classification = "classification",
        Regression = "regression",
        LanguageModelling = "language-modelling",
    }
}

/// The task of class targets: one class of a sample, of each of its pixels or of each of its tokens. Its loss is cross-entropy unless
/// `[loss]` says otherwise, and it measures `accuracy`, and `top5` of more than five classes.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Classification {}

/// The task of targets that are numbers. Its loss is the mean squared error unless `[loss]` says otherwise, and it measures `mae`, `mse` and
/// `r2`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Regression {}

/// The task of sequences of tokens whose targets are tokens, too: usually the next ones. Its loss is cross-entropy unless `[loss]` says
/// otherwise, and it measures `accuracy` and `perplexity`, which is that of
/// the cross-entropy without `train.label_smoothing`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct LanguageModelling {}

/// The tasks by name.
pub fn standard_kinds() -> Vec<(&'static str, TaskKind)> {
    StandardTask::ALL.map(|task| (task.name(), TaskKind::Standard(task))).to_vec()
}

impl StandardTask {
    /// Reads its table, which has no keys. Its name changes no results: they are those of a spec without it.
    pub(super) fn read(self, fields: &mut Fields<'_>) {
        fields.without_effect(&["name"]);
        match self {
            Self::Classification => {
                fields.config::<Classification>();
            }
            Self::Regression => {
                fields.config::<Regression>();
            }
            Self::LanguageModelling => {
                fields.config::<LanguageModelling>();
            }
        }
    }

    /// Whether the targets are numbers.
    pub fn has_numbers(self) -> bool {
        self == Self::Regression
    }

    /// Checks that the samples are what the task is for, as far as they are known.
    ///
    /// # Errors
    /// They are not: what they are, and which name fits.
    pub fn fits(self, input: Option<&FieldFacts>, target: Option<&FieldFacts>) -> Result<(), String> {
        let Some(target) = target else { return Ok(()) };
        let sequences = !target.shape.is_empty() && input.is_none_or(|input| input.kind != FieldKind::Float);
        let (fits, needs) = match (self, target.kind) {
            (Self::Classification, kind) => (kind != FieldKind::Float, "classes as targets"),
            (Self::Regression, kind) => (kind == FieldKind::Float, "numbers as targets"),
            (Self::LanguageModelling, kind) => {
                (kind != FieldKind::Float && sequences, "sequences of tokens as inputs and targets")
            }
        };
        if fits {
            return Ok(());
        }
        let (are, fitting) = match target.kind {
            FieldKind::Float => ("numbers".to_owned(), Self::Regression),
            FieldKind::Index(classes) if sequences => {
                (format!("sequences of indices below {classes}"), Self::LanguageModelling)
            }
            FieldKind::Index(classes) => (format!("{classes} classes"), Self::Classification),
        };
        Err(format!(
            "the task `{self}` requires {needs}, but the data set's targets are {are}; `name = \"{fitting}\"` fits"
        ))
    }

    /// Checks that the task has this loss, where the data are not known yet.
    ///
    /// # Errors
    /// It has not: why, and which loss fits.
    pub fn has_loss(self, loss: StandardLoss) -> Result<(), String> {
        let (loss, fitting) = match (self.has_numbers(), loss) {
            (true, StandardLoss::CrossEntropy { .. }) => ("cross-entropy requires class targets", "mse"),
            (false, StandardLoss::Mse) => ("mse requires numbers as targets", "cross-entropy"),
            _ => return Ok(()),
        };
        let what = if self.has_numbers() { "numbers" } else { "classes" };
        Err(format!(
            "{loss}, but those of the task `{self}` are {what}; set `loss = \"{fitting}\"` in `[train]`"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(shape: &[usize], kind: FieldKind) -> FieldFacts {
        FieldFacts { shape: shape.to_vec(), kind }
    }

    #[test]
    fn a_name_fits_its_targets_and_tells_which_one_fits_others() {
        use StandardTask::{Classification, LanguageModelling, Regression};
        let (numbers, image) = (facts(&[], FieldKind::Float), facts(&[3, 8, 8], FieldKind::Float));
        let (class, pixels) = (facts(&[], FieldKind::Index(10)), facts(&[64], FieldKind::Index(2)));
        let tokens = facts(&[16], FieldKind::Index(65));
        let found = |input: &FieldFacts, target: &FieldFacts| {
            let fits = |task: &StandardTask| task.fits(Some(input), Some(target)).is_ok();
            StandardTask::ALL.into_iter().filter(fits).collect::<Vec<_>>()
        };
        assert_eq!(found(&image, &class), [Classification]);
        assert_eq!(found(&image, &pixels), [Classification]);
        assert_eq!(found(&image, &numbers), [Regression]);
        assert_eq!(found(&tokens, &tokens), [Classification, LanguageModelling]);
        for (task, input, target, expected) in [
            (Classification, &image, &numbers, "targets are numbers; `name = \"regression\"` fits"),
            (Regression, &image, &class, "targets are 10 classes; `name = \"classification\"` fits"),
            (
                LanguageModelling,
                &image,
                &pixels,
                "requires sequences of tokens as inputs and targets, but the data set's targets are 2 classes",
            ),
            (Regression, &tokens, &tokens, "indices below 65; `name = \"language-modelling\"` fits"),
        ] {
            let why = task.fits(Some(input), Some(target)).unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
        // What is not known yet may fit.
        assert_eq!(Regression.fits(None, None), Ok(()));
        assert_eq!(LanguageModelling.fits(None, Some(&tokens)), Ok(()));
    }

    #[test]
    fn a_loss_of_other_targets_is_refused_before_the_data_are_known() {
        let cross_entropy = StandardLoss::CrossEntropy { label_smoothing: 0.0 };
        for task in StandardTask::ALL {
            let (own, other, expected) = match task.has_numbers() {
                true => (StandardLoss::Mse, cross_entropy, "set `loss = \"mse\"`"),
                false => (cross_entropy, StandardLoss::Mse, "set `loss = \"cross-entropy\"`"),
            };
            assert_eq!(task.has_loss(own), Ok(()));
            assert!(task.has_loss(other).unwrap_err().contains(expected), "{task}");
        }
    }
}
