//! Keeps compiled kernels (on CUDA) and the choices of CubeCL's tuner between starts: a restarted run is fast at once,
//! and continues with the same kernels and therefore the same rounding.
//!
//! CubeCL stores them in a database. Here each process has its own, by card, precision and local rank: no process waits
//! for another one's lock, a rank gets its own choices back, and a choice is never used for another card or precision,
//! which may not have that kernel.

use super::{ComputeDevice, Precision};
use base::files::LockedFile;
use cubecl::config::cache::CacheConfig;
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubecl::records::RecordLevel;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The lock, held until the process ends, and a description of where this process keeps its kernels.
static KEPT: OnceLock<(Option<LockedFile>, String)> = OnceLock::new();

/// A path where no folder exists or can be created. CubeCL then keeps its measurements of the device in memory, as it
/// does whenever it can't write. Persistence must not be turned off instead: CubeCL would repeat the measurements for
/// every kernel.
const UNWRITABLE: &str = "/dev/null/kernels";
/// Maximum processes with the same card, precision and local rank that keep kernels at the same time.
const MAX_ALIKE: usize = 16;
/// Bytes that must be free: the database is mapped, and a write to a page without space on disk kills the process.
const MIN_FREE: u64 = 64 << 20;

/// Keeps the kernels of `device` in the first usable one of `folders`, or nowhere; returns a description. The first
/// call takes effect, and opening a device before it counts as one. `slot` distinguishes the processes of a host.
pub fn keep_kernels(
    folders: impl IntoIterator<Item = PathBuf>,
    device: ComputeDevice,
    precision: Precision,
    slot: &str,
) -> &'static str {
    let (_, description) = KEPT.get_or_init(|| {
        let name = format!("{}-{}-{slot}", card(device), precision.name());
        let mut why = Vec::new();
        for folder in folders {
            match lock_database(&folder, &name) {
                Ok((name, lock)) => {
                    let description = format!(
                        "compiled kernels are cached in {}",
                        folder.join(format!("{name}.db")).display()
                    );
                    return (Some(lock), keep(Some((folder, name)), description));
                }
                Err(error) => why.push(error),
            }
        }
        let why = if why.is_empty() { String::new() } else { format!(": {}", why.join("; ")) };
        (None, keep(None, format!("compiled kernels are not cached{why}")))
    });
    description
}

/// For a process that opens a device without calling [`keep_kernels`].
pub(super) fn use_defaults() {
    keep_kernels([], ComputeDevice::Cpu, Precision::default(), "");
}

/// What kernels are tuned for. CubeCL itself distinguishes devices only by number.
fn card(device: ComputeDevice) -> String {
    match device {
        #[cfg(feature = "cuda")]
        ComputeDevice::Cuda(index) => file_name(&super::cuda::card(index)),
        #[cfg(feature = "wgpu")]
        ComputeDevice::Wgpu(index) => {
            let card = super::wgpu::list().get(index).and_then(|found| found.card());
            file_name(&card.unwrap_or_else(|| device.to_string()))
        }
        #[allow(unreachable_patterns, reason = "a build may have all devices")]
        _ => file_name(&device.to_string()),
    }
}

/// Driver descriptions may be long and contain any characters.
fn file_name(words: &str) -> String {
    let parts = words.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
    let mut name = parts.collect::<Vec<_>>().join("-").to_ascii_lowercase();
    name.truncate(150);
    name
}

/// Configures CubeCL, which reads its settings once. Settings of its file and variables are kept, except those about
/// persistence.
fn keep(place: Option<(PathBuf, String)>, description: String) -> String {
    let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
    config.autotune.disable_cache = place.is_none();
    config.compilation.cache = place.is_some();
    config.environment.records.level = RecordLevel::Off;
    let (own, name) = place.unwrap_or_else(|| (UNWRITABLE.into(), "none".to_owned()));
    config.environment.path = CacheConfig::Directory(own);
    config.environment.name = name;
    match CubeClRuntimeConfig::try_set(config) {
        true => description,
        false => "compiled kernels are cached where CubeCL was configured before".to_owned(),
    }
}

/// Creates `folder` and locks a database in it for this process.
fn lock_database(folder: &Path, name: &str) -> Result<(String, LockedFile), String> {
    let at = |e: std::io::Error| format!("{}: {e}", folder.display());
    fs::create_dir_all(folder).map_err(at)?;
    if is_on_the_network(folder) {
        return Err(format!("{} is on a network file system", folder.display()));
    }
    let space = rustix::fs::statvfs(folder).map_err(|e| at(e.into()))?;
    if space.f_bavail.saturating_mul(space.f_frsize) < MIN_FREE {
        return Err(format!("{}: less than {} MiB are free", folder.display(), MIN_FREE >> 20));
    }
    for number in 0..MAX_ALIKE {
        let name = if number == 0 { name.to_owned() } else { format!("{name}.{number}") };
        let path = folder.join(format!("{name}.lock"));
        let lock = base::files::open_with(&path, File::options().create(true).append(true)).map_err(at)?;
        match lock.try_lock() {
            Ok(()) => return Ok((name, LockedFile(lock))),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(e)) => return Err(at(e)),
        }
    }
    Err(format!("{}: {MAX_ALIKE} other processes use this cache", folder.display()))
}

/// Network file systems, on which the database engine refuses to share memory between processes.
#[cfg(target_os = "linux")]
fn is_on_the_network(folder: &Path) -> bool {
    // AFS, CIFS, Coda, Ceph, GFS2, Lustre, NCP, NFS, OCFS2, SMB2, 9P, as in turso_core 0.8; GPFS and BeeGFS.
    const KINDS: [u32; 13] = [
        0x5346_414f,
        0xff53_4d42,
        0x7375_7245,
        0x00c3_6400,
        0x0116_1970,
        0x0bd0_0bd0,
        0x564c,
        0x6969,
        0x7461_636f,
        0xfe53_4d42,
        0x0102_1997,
        0x4750_4653,
        0x1983_0326,
    ];
    rustix::fs::statfs(folder).is_ok_and(|found| KINDS.contains(&(found.f_type as u32)))
}

#[cfg(not(target_os = "linux"))]
fn is_on_the_network(_: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_locked_by_one_process_and_errors_name_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let held = || lock_database(folder.path(), "h200-f32-0").unwrap();
        let (first, second) = (held(), held());
        assert_eq!((first.0.as_str(), second.0.as_str()), ("h200-f32-0", "h200-f32-0.1"));
        drop(first);
        assert_eq!(held().0, "h200-f32-0");
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let refused = lock_database(&file, "h200-f32-0").unwrap_err();
        assert!(refused.starts_with(&format!("{}: ", file.display())), "{refused}");
        assert!(!is_on_the_network(folder.path()));
        let all: Vec<_> = (0..MAX_ALIKE - 1).map(|_| held()).collect();
        assert!(lock_database(folder.path(), "h200-f32-0").unwrap_err().contains("16 other processes"));
        drop(all);
    }

    #[test]
    fn a_card_is_a_file_name() {
        assert_eq!(file_name("wgpu:1"), "wgpu-1");
        assert_eq!(
            file_name("wgpu AMD Radeon RX 7900 (RADV NAVI31) radv Mesa 24.0.5/a"),
            "wgpu-amd-radeon-rx-7900-radv-navi31-radv-mesa-24-0-5-a"
        );
        assert_eq!(file_name(&"long ".repeat(100)).len(), 150);
        assert_eq!(card(ComputeDevice::Cpu), "cpu");
    }
}
