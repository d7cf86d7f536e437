//! What a check finds in a document, in the files that it extends, and in the edits of the server's command line.

use super::text::Text;
use job::plan::Plan;
use lsp_types::DiagnosticSeverity;
use spec::{Diagnostics, JobTree, Problem, Source};
use std::path::PathBuf;

/// A problem, or a warning.
pub struct Finding {
    /// The file that it is in; `None` for the document itself and for the command line.
    pub base: Option<Base>,
    /// The bytes; of the file's text if there is one, else of the document.
    pub range: std::ops::Range<usize>,
    pub message: String,
    pub code: &'static str,
    pub meant: Option<String>,
    pub severity: DiagnosticSeverity,
}

/// Another file.
pub struct Base {
    pub path: PathBuf,
    pub text: Text,
}

impl Base {
    /// `None` for a file that the spec does not extend.
    fn from_source(source: &Source) -> Option<Self> {
        source
            .is_base()
            .then(|| Self { path: PathBuf::from(&source.name), text: Text::new(source.text.as_str()) })
    }
}

impl Finding {
    /// One that is nowhere in the text.
    pub fn at_start(message: String, code: &'static str, severity: DiagnosticSeverity) -> Self {
        Self { base: None, range: 0..0, message, code, meant: None, severity }
    }
}

fn hint(problem: &Problem) -> String {
    problem.hint.as_deref().map(|hint| format!("\nhint: {hint}")).unwrap_or_default()
}

/// The edits of the server's command line that do not fit the spec, each with its message. They are for all specs, so
/// a spec without such a key is not an error.
pub fn unfit_edits(diagnostics: &Diagnostics) -> Vec<(String, Finding)> {
    let of = |problem: &Problem| {
        let source = diagnostics.source(problem);
        let message =
            format!("{}: {}; not applied to this spec{}", source.text, problem.message, hint(problem));
        let found = Finding::at_start(message, problem.code(), DiagnosticSeverity::INFORMATION);
        source.is_override().then(|| (source.text.clone(), found))
    };
    diagnostics.problems().iter().filter_map(of).collect()
}

/// All problems of a check.
pub fn all(diagnostics: &Diagnostics) -> Vec<Finding> {
    let of = |problem: &Problem| {
        let source = diagnostics.source(problem);
        Finding {
            base: Base::from_source(source),
            range: problem.span.start..problem.span.end,
            message: format!("{}{}", problem.message, hint(problem)),
            code: problem.code(),
            meant: problem.meant.clone(),
            severity: DiagnosticSeverity::ERROR,
        }
    };
    diagnostics.problems().iter().map(of).collect()
}

/// The warnings about a sound spec.
pub fn warnings(plan: &Plan, tree: &JobTree) -> Vec<Finding> {
    let of = |(key, why): (&str, String)| {
        let place = tree.place(key);
        let source = place.map(|place| tree.source(place.value));
        let own = place.filter(|_| source.is_some_and(|source| !source.is_override()));
        Finding {
            base: source.and_then(Base::from_source),
            range: own.map_or(0..0, |place| place.value.start..place.value.end),
            message: format!("`{key}`: {why}"),
            code: "warning",
            meant: None,
            severity: DiagnosticSeverity::WARNING,
        }
    };
    plan.warnings().into_iter().map(of).collect()
}
