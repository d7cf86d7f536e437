//! Where a process keeps its device's compiled kernels between starts.

use data::Cache;
use ddp::device::{ComputeDevice, Precision};
use std::path::PathBuf;

/// A folder, or `off`. If unset, `kernels` in the user's cache, or a temporary folder if that is on a network file system.
const KERNEL_CACHE: &str = "DDP_RUN_KERNEL_CACHE";

/// Keeps the kernels of `device` in the folder that the environment selects, and returns its description; does
/// nothing for the CPU. `slot` distinguishes the processes of one host. Call it before the device is opened.
pub fn keep_kernels(device: ComputeDevice, precision: Precision, slot: &str) -> Option<&'static str> {
    if device == ComputeDevice::Cpu {
        return None;
    }
    let asked = std::env::var_os(KERNEL_CACHE).map(PathBuf::from);
    keep(folders(asked, &Cache::of_user(), temporary), device, precision, slot)
}

/// The candidates, in order; the temporary folder is only created if it is needed.
fn folders(
    asked: Option<PathBuf>,
    cache: &Cache,
    temporary: fn() -> Option<PathBuf>,
) -> impl Iterator<Item = PathBuf> + use<> {
    let asked = asked.filter(|folder| !folder.as_os_str().is_empty());
    let usual = asked.is_none();
    let first = match asked {
        Some(folder) => (folder.as_os_str() != "off").then_some(folder),
        None => cache.folder().map(|folder| folder.join("kernels")),
    };
    first.into_iter().chain(std::iter::once_with(move || usual.then(temporary).flatten()).flatten())
}

/// A local folder that only this user can write to, because its content is executed.
fn temporary() -> Option<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    let own = rustix::process::geteuid().as_raw();
    let folder = std::env::temp_dir().join(format!("ddp-run-{own}"));
    let _ = std::fs::DirBuilder::new().mode(0o700).create(&folder);
    let found = std::fs::symlink_metadata(&folder).ok()?;
    let private = found.is_dir() && found.uid() == own && found.mode() & 0o077 == 0;
    private.then(|| folder.join("kernels"))
}

#[cfg(feature = "cubecl-devices")]
fn keep(
    folders: impl Iterator<Item = PathBuf>,
    device: ComputeDevice,
    precision: Precision,
    slot: &str,
) -> Option<&'static str> {
    Some(ddp::device::keep_kernels(folders, device, precision, slot))
}

#[cfg(not(feature = "cubecl-devices"))]
fn keep(_: impl Iterator<Item = PathBuf>, _: ComputeDevice, _: Precision, _: &str) -> Option<&'static str> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_or_off_or_the_users_cache() {
        fn temporary() -> Option<PathBuf> {
            Some("/tmp/ddp-run-7/kernels".into())
        }
        let cache = Cache::at("/c/ddp-run");
        let of =
            |asked: Option<&str>| folders(asked.map(PathBuf::from), &cache, temporary).collect::<Vec<_>>();
        assert_eq!(of(Some("/scratch/k")), [PathBuf::from("/scratch/k")]);
        assert!(of(Some("off")).is_empty());
        let usual = [PathBuf::from("/c/ddp-run/kernels"), "/tmp/ddp-run-7/kernels".into()];
        assert_eq!(of(Some("")), usual);
        assert_eq!(of(None), usual);
        assert_eq!(folders(None, &Cache::none(), || None).count(), 0);
        // The temporary folder is not created unnecessarily.
        assert_eq!(folders(None, &cache, || panic!("made")).next(), Some(usual[0].clone()));
    }
}
