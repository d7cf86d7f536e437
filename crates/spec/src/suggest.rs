//! "Did you mean": the closest known name by edit distance.

/// The candidate closest to `typed`, if it is close enough: at most a third of its characters differ
/// (Damerau-Levenshtein, ignoring case and `-` against `_`), or they are equal without separators.
pub fn closest<'a>(typed: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |s: &str| s.to_lowercase().replace('-', "_");
    let typed = plain(typed);
    let length = typed.chars().count();
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let other = plain(candidate);
            let other_length = other.chars().count();
            let allowed = length.max(other_length).div_ceil(3);
            let distance = if other.replace('_', "") == typed.replace('_', "") {
                0
            } else if length.abs_diff(other_length) > allowed {
                // The distance is at least that large, and computing it needs memory for the product of both lengths.
                return None;
            } else {
                strsim::damerau_levenshtein(&typed, &other)
            };
            (distance <= allowed && distance < length.max(1)).then_some((distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `; did you mean `x`?`, or the list of candidates if none is close (nothing if the list is long).
pub fn did_you_mean<'a>(typed: &str, candidates: impl IntoIterator<Item = &'a str> + Clone) -> String {
    if let Some(best) = closest(typed, candidates.clone()) {
        return format!("; did you mean `{best}`?");
    }
    let all: Vec<String> = candidates.into_iter().map(|c| format!("`{c}`")).collect();
    match all.as_slice() {
        [] => String::new(),
        [one] => format!("; only {one} is known here"),
        many if many.len() <= 16 => format!("; known here: {}", many.join(", ")),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_the_closest_name() {
        let keys = ["batch_size", "backend", "epochs", "seed"];
        assert_eq!(closest("batchsize", keys), Some("batch_size"));
        assert_eq!(closest("batch-size", keys), Some("batch_size"));
        assert_eq!(closest("Epoch", keys), Some("epochs"));
        assert_eq!(closest("sede", keys), Some("seed"));
        assert_eq!(closest("learning_rate", keys), None);
        assert_eq!(closest("", keys), None);
    }

    #[test]
    fn does_not_suggest_for_single_letters() {
        assert_eq!(closest("x", ["y"]), None);
    }

    #[test]
    fn lists_the_choices_without_a_close_name() {
        assert_eq!(did_you_mean("qqq", ["adam", "sgd"]), "; known here: `adam`, `sgd`");
        assert_eq!(did_you_mean("qqq", []), "");
    }
}
