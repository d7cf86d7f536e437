//! The devices and backends that this build and this machine have, and why others are missing.

use collectives::gloo::shm;
use collectives::{mpi, nccl};
use ddp::device;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Status {
    pub available: bool,
    /// A description, or why it is missing.
    pub detail: String,
}

impl From<Result<String, String>> for Status {
    fn from(found: Result<String, String>) -> Self {
        Self { available: found.is_ok(), detail: found.unwrap_or_else(|why| why) }
    }
}

pub(super) fn devices() -> [(&'static str, Status); 3] {
    let named = |found: Result<Vec<String>, String>| found.map(|names| names.join(", "));
    let all = [Ok("flex".to_owned()), named(device::cuda_devices()), named(device::wgpu_devices())];
    let [cpu, cuda, wgpu] = all.map(Status::from);
    [("cpu", cpu), ("cuda", cuda), ("wgpu", wgpu)]
}

pub(super) fn backends() -> [(&'static str, Status); 3] {
    let [gloo, nccl, mpi] = [Ok(gloo()), nccl::status(), mpi::status()].map(Status::from);
    [("gloo", gloo), ("nccl", nccl), ("mpi", mpi)]
}

fn gloo() -> String {
    let within = match shm::available() {
        Ok(()) => "shared memory within a host".to_owned(),
        Err(e) => format!("TCP within a host (no shared memory: {e})"),
    };
    format!("{within}, TCP between hosts ({})", interfaces())
}

/// `lo 127.0.0.1, eth0 192.0.2.2`: possible values of `[distributed] interface`.
fn interfaces() -> String {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    // Link-local addresses are not usable from other machines.
    let usable = all.iter().filter(|interface| !interface.is_link_local());
    let shown: Vec<String> = usable.map(|one| format!("{} {}", one.name, one.ip())).collect();
    if shown.is_empty() { "no interface has an address".to_owned() } else { shown.join(", ") }
}
