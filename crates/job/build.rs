//! What `run.json` says of the build: the compiler's version, and Burn's; and for `bench`, how it is optimised.

use std::process::Command;

/// The manifest in a package has the pinned version of Burn itself, in the repository the workspace has it.
const MANIFESTS: [&str; 2] = ["Cargo.toml", "../../Cargo.toml"];

fn main() {
    println!("cargo:rerun-if-env-changed=RUSTC");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    if let Ok(output) = Command::new(rustc).arg("--version").output() {
        println!("cargo:rustc-env=DDP_RUN_RUSTC={}", String::from_utf8_lossy(&output.stdout).trim());
    }
    println!("cargo:rustc-env=DDP_RUN_OPT_LEVEL={}", std::env::var("OPT_LEVEL").unwrap_or_default());
    let version = MANIFESTS.iter().find_map(|manifest| {
        println!("cargo:rerun-if-changed={manifest}");
        burn(&std::fs::read_to_string(manifest).ok()?).map(str::to_owned)
    });
    println!("cargo:rustc-env=DDP_RUN_BURN={}", version.expect("Cargo.toml pins Burn"));
}

/// The version in `burn = { version = "=…" …`, or in the table that Cargo makes of it when it packs a crate.
fn burn(manifest: &str) -> Option<&str> {
    let inline = manifest.split_once("\nburn = {").map(|(_, rest)| rest);
    let rest = inline.or_else(|| Some(manifest.split_once("\n[dependencies.burn]")?.1))?;
    rest.split_once("version = \"=")?.1.split('"').next()
}
