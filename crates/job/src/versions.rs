//! The versions of this build.

use record::build_id;
use record::provenance::Versions;

/// Whether this build is optimised and without debug assertions.
pub const OPTIMIZED: bool = !matches!(env!("DDP_RUN_OPT_LEVEL").as_bytes(), b"0") && !cfg!(debug_assertions);

/// Those of this program.
pub fn here() -> Versions {
    Versions {
        ddp_run: env!("CARGO_PKG_VERSION").to_owned(),
        burn: env!("DDP_RUN_BURN").to_owned(),
        rustc: option_env!("DDP_RUN_RUSTC").map(str::to_owned),
        build: build_id(),
    }
}

#[cfg(test)]
mod tests {
    use super::here;

    #[test]
    fn versions_match_the_lock_file() {
        let versions = here();
        let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).unwrap();
        assert!(
            lock.contains(&format!("name = \"burn\"\nversion = \"{}\"\n", versions.burn)),
            "{versions:?}"
        );
        assert!(versions.rustc.is_some_and(|rustc| rustc.starts_with("rustc 1.")));
    }
}
