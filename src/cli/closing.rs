//! What is said of a run that was stopped: only what is so.

/// What is saved of the run, where `found` was the newest checkpoint's step before it and `newest` is now, and which command goes on
/// from it; `resume` is this one's.
pub(super) fn saved(found: Option<u64>, newest: Option<u64>, resume: &str) -> String {
    let again = match resume {
        "auto" => "the same command",
        // It would start over, or go on from elsewhere, once more.
        _ => "the same command with `--resume auto`",
    };
    match newest {
        None => "nothing is saved: the same command begins as this one did".to_owned(),
        Some(step) if found == newest => format!("nothing more is saved: {again} goes on from step {step}"),
        Some(step) => format!("step {step} is saved: {again} goes on from it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_it_gets_what_it_says() {
        assert_eq!(saved(None, Some(317), "auto"), "step 317 is saved: the same command goes on from it");
        assert_eq!(
            saved(Some(9), Some(9), "auto"),
            "nothing more is saved: the same command goes on from step 9"
        );
        let over = saved(None, Some(4), "never");
        assert_eq!(over, "step 4 is saved: the same command with `--resume auto` goes on from it");
        for resume in ["auto", "never", "runs/other"] {
            assert_eq!(
                saved(None, None, resume),
                "nothing is saved: the same command begins as this one did"
            );
        }
    }
}
