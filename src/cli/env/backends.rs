//! The devices and backends that this build and this machine have, and why others are missing.

use crate::comm::gloo::shm;
use crate::comm::{mpi, nccl};
use crate::device;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Status {
    pub available: bool,
    /// A description, or why it is missing.
    pub detail: String,
}

impl Status {
    fn yes(detail: impl Into<String>) -> Self {
        Self { available: true, detail: detail.into() }
    }

    fn no(why: impl Into<String>) -> Self {
        Self { available: false, detail: why.into() }
    }
}

pub(super) fn devices() -> [(&'static str, Status); 3] {
    let named = |found: Result<Vec<String>, String>| match found {
        Ok(names) => Status::yes(names.join(", ")),
        Err(why) => Status::no(why),
    };
    [
        ("cpu", Status::yes("flex")),
        ("cuda", named(device::cuda_devices())),
        ("wgpu", named(device::wgpu_devices())),
    ]
}

pub(super) fn backends() -> [(&'static str, Status); 3] {
    [("gloo", gloo_status()), ("nccl", nccl_status()), ("mpi", mpi_status())]
}

fn gloo_status() -> Status {
    let within = match shm::available() {
        Ok(()) => "shared memory within a host".to_owned(),
        Err(e) => format!("TCP within a host (no shared memory: {e})"),
    };
    Status::yes(format!("{within}, TCP between hosts ({})", interfaces()))
}

/// `lo 127.0.0.1, eth0 192.0.2.2`: possible values of `[distributed] interface`.
fn interfaces() -> String {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    let mut shown: Vec<String> = Vec::new();
    for interface in &all {
        // Link-local addresses are not usable from other machines.
        if !interface.is_link_local() {
            shown.push(format!("{} {}", interface.name, interface.ip()));
        }
    }
    if shown.is_empty() { "no interface has an address".to_owned() } else { shown.join(", ") }
}

fn nccl_status() -> Status {
    nccl::status().map_or_else(Status::no, Status::yes)
}

fn mpi_status() -> Status {
    mpi::status().map_or_else(Status::no, Status::yes)
}
