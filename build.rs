//! What `run.json` says of the build: the compiler's version, and Burn's, which Cargo.toml pins; and for `bench`, how it is optimised.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=Cargo.toml");
    println!("cargo:rerun-if-env-changed=RUSTC");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    if let Ok(output) = Command::new(rustc).arg("--version").output() {
        println!("cargo:rustc-env=DDP_RUN_RUSTC={}", String::from_utf8_lossy(&output.stdout).trim());
    }
    println!("cargo:rustc-env=DDP_RUN_OPT_LEVEL={}", std::env::var("OPT_LEVEL").unwrap_or_default());
    let manifest = std::fs::read_to_string("Cargo.toml").expect("Cargo.toml can be read");
    println!("cargo:rustc-env=DDP_RUN_BURN={}", burn(&manifest).expect("Cargo.toml pins Burn"));
}

/// The version in `burn = { version = "=…" …`, or in the table that Cargo makes of it when it packs a crate.
fn burn(manifest: &str) -> Option<&str> {
    let inline = manifest.split_once("\nburn = {").map(|(_, rest)| rest);
    let rest = inline.or_else(|| Some(manifest.split_once("\n[dependencies.burn]")?.1))?;
    rest.split_once("version = \"=")?.1.split('"').next()
}
