//! How the ranks of the control group form one communicator: each sends the others its [`RankInfo`], all check these in
//! the same way, rank 0's id is broadcast, and NCCL connects.

use super::driver::{self, CudaContext, CudaStream};
use super::engine::{Engine, blame, overdue, poll_control};
use super::library::{Communicator, CommunicatorState, Nccl, UniqueId};
use super::order::StreamOrder;
use super::version::NcclVersion;
use crate::probe::MAX_REPORTED;
use crate::rendezvous::truncated;
use crate::{CommError, DistributedConfig, GpuUuid, ProcessGroup, on_one_gpu};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Bytes of a [`RankInfo`] on the wire, and of the longest text in it.
const INFO_SIZE: usize = 4096;
const TEXT: usize = 600;
/// Pause between two checks of a communicator that is being formed.
const LOOK: Duration = Duration::from_millis(1);
/// How long NCCL may take to abort.
const ABORT: Duration = Duration::from_secs(5);

/// What the other ranks must know about a rank.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct RankInfo {
    /// From `ncclGetVersion`.
    nccl: i32,
    gpu: GpuUuid,
    /// NCCL_HOSTID: NCCL takes ranks with different values to be on different hosts, and lets them use the same GPU.
    host: Option<String>,
    /// NCCL_MULTI_RANK_GPU_ENABLE: NCCL itself lets ranks use the same GPU.
    shares: bool,
}

/// A rank's info, or why it has none.
type RankInfoResult = Result<RankInfo, String>;

/// What a rank has before it joins.
struct LocalSetup {
    nccl: &'static Nccl,
    context: CudaContext,
    stream: CudaStream,
    order: StreamOrder,
    info: RankInfo,
}

impl LocalSetup {
    fn open(device: usize) -> Result<Self, String> {
        let context = CudaContext::open(device)?;
        let nccl = Nccl::load()?;
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let info = RankInfo {
            nccl: nccl.version().0,
            gpu: driver::uuid(device)?,
            host: variable("NCCL_HOSTID").map(|host| truncated(&host, TEXT).to_owned()),
            shares: variable("NCCL_MULTI_RANK_GPU_ENABLE").is_some_and(|v| v != "0"),
        };
        Ok(Self { nccl, stream: context.stream()?, order: StreamOrder::choose(&context)?, info, context })
    }
}

/// Joins all ranks of `control` on their devices, within `init_timeout`.
pub(super) fn join(
    control: Arc<dyn ProcessGroup>,
    device: usize,
    limits: &DistributedConfig,
) -> Result<Engine, CommError> {
    let own = LocalSetup::open(device);
    let own_info = own.as_ref().map(|own| own.info.clone()).map_err(Clone::clone);
    let all_infos = exchange(&*control, &own_info)?;
    check_compatible(&all_infos)?;
    // All ranks can join, including this one.
    let LocalSetup { nccl, context, stream, order, .. } = own.map_err(CommError::unavailable)?;
    // Rank 0 creates the id; all ranks get it, or rank 0's error.
    let mut id = UniqueId([0; 128]);
    if control.rank() == 0 {
        id = nccl.unique_id().map_err(|why| blame(&*control, &why))?;
    }
    control.broadcast((&mut id.0[..]).into(), 0)?;
    let formed = form(&*control, nccl, id, *limits.init_timeout);
    let communicator = formed.map_err(CommError::at_the_start)?;
    if control.rank() == 0 {
        let (world, version, driver) =
            (control.world_size(), nccl.version(), context.driver().unwrap_or_default());
        tracing::info!(
            "nccl: {world} ranks joined by NCCL {version} (driver for CUDA {}.{}); collectives are ordered by {order}",
            driver / 1000,
            driver / 10 % 100
        );
    }
    Ok(Engine::new(control, context, (stream, order), communicator, *limits.timeout))
}

/// Every rank's info, by rank.
fn exchange(control: &dyn ProcessGroup, own_info: &RankInfoResult) -> Result<Vec<RankInfoResult>, CommError> {
    let own_info = own_info.as_ref().map_err(|why| truncated(why, TEXT));
    // Numbers and short texts: never too long, and always serialisable.
    let mut bytes = serde_json::to_vec(&own_info).unwrap_or_default();
    bytes.resize(INFO_SIZE, b' ');
    let mut all = vec![0u8; INFO_SIZE * control.world_size()];
    control.all_gather((&bytes[..]).into(), (&mut all[..]).into())?;
    let read = |info: &[u8]| serde_json::from_slice(info).unwrap_or_else(|e| Err(format!("unreadable: {e}")));
    Ok(all.chunks_exact(INFO_SIZE).map(read).collect())
}

/// Whether these ranks can be joined; the answer is the same on all of them.
fn check_compatible(all_infos: &[RankInfoResult]) -> Result<(), CommError> {
    let missing: Vec<String> = (all_infos.iter().enumerate())
        .filter_map(|(rank, own_info)| own_info.as_ref().err().map(|why| format!("rank {rank}: {why}")))
        .collect();
    if !missing.is_empty() {
        let listed = missing[..missing.len().min(MAX_REPORTED)].join("\n  ");
        return Err(CommError::unavailable(format!("backend `nccl` cannot be used:\n  {listed}"))
            .hint("`backend = \"gloo\"` needs no NCCL; `ddp-run env` shows what is available"));
    }
    let infos: Vec<&RankInfo> = all_infos.iter().flatten().collect();
    let version = |rank: usize| NcclVersion(infos[rank].nccl);
    let other = (1..infos.len()).find(|r| version(*r).major_minor() != version(0).major_minor());
    if let Some(other) = other {
        return Err(CommError::unavailable(format!(
            "ranks have different versions of NCCL: rank 0 has {}, rank {other} has {}",
            version(0),
            version(other)
        ))
        .hint("different versions of NCCL cannot communicate: install the same version on every node"));
    }
    let gpus: Vec<Option<GpuUuid>> = infos.iter().map(|info| Some(info.gpu)).collect();
    let Some(shared) = on_one_gpu(&gpus, |a, b| nccl_lets_share(infos[a], infos[b])) else { return Ok(()) };
    Err(CommError::unavailable(shared).hint(
        "NCCL needs a GPU for each rank, whatever `share_devices` says: start fewer, or have those that share one use \
         `backend = \"gloo\"`. In tests, a different NCCL_HOSTID for each rank, together with `share_devices = true`, \
         makes NCCL allow it",
    ))
}

/// Whether NCCL lets two ranks share one GPU, which it normally refuses.
fn nccl_lets_share(a: &RankInfo, b: &RankInfo) -> bool {
    let apart = a.host.is_some() && b.host.is_some() && a.host != b.host;
    apart || a.shares && b.shares
}

/// Waits for NCCL to connect all ranks, and detects ranks that have failed to.
fn form(
    control: &dyn ProcessGroup,
    nccl: &'static Nccl,
    id: UniqueId,
    timeout: Duration,
) -> Result<Communicator, CommError> {
    let begun = Instant::now();
    let begin = Communicator::begin(nccl, control.world_size(), id, control.rank());
    let mut communicator = begin.map_err(|why| blame(control, &why))?;
    let error = loop {
        match communicator.state() {
            Ok(CommunicatorState::Ready) => return Ok(communicator),
            Ok(CommunicatorState::InProgress) => {}
            Err(why) => break blame(control, &why),
        }
        if let Err(error) = poll_control(control) {
            break error;
        }
        if begun.elapsed() > timeout {
            break overdue(control, "NCCL initialization", 0, timeout);
        }
        std::thread::sleep(LOOK);
    };
    // With a limit, because NCCL waits for one of its threads here.
    let (done, wait) = mpsc::channel();
    let abort = move || done.send(communicator.abort());
    if std::thread::Builder::new().name("nccl-abort".into()).spawn(abort).is_ok() {
        let _ = wait.recv_timeout(ABORT);
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CommErrorKind;

    fn info(gpu: u8) -> RankInfo {
        RankInfo { nccl: 22703, gpu: GpuUuid([gpu; 16]), host: None, shares: false }
    }

    #[track_caller]
    fn refused(all_infos: &[RankInfoResult], says: &str) {
        let error = check_compatible(all_infos).unwrap_err();
        assert_eq!(error.kind, CommErrorKind::Unavailable);
        assert!(error.message.contains(says), "{error}");
    }

    #[test]
    fn ranks_with_a_gpu_each_are_joined() {
        assert!(
            check_compatible(&[Ok(info(1)), Ok(info(2)), Ok(RankInfo { nccl: 22705, ..info(3) })]).is_ok()
        );
    }

    #[test]
    fn missing_libraries_are_reported_with_their_ranks() {
        refused(
            &[Ok(info(1)), Err("no NCCL".into()), Err("no GPU".into())],
            "rank 1: no NCCL\n  rank 2: no GPU",
        );
    }

    #[test]
    fn versions_that_differ_in_more_than_the_patch_are_refused() {
        let all_infos = [Ok(info(1)), Ok(info(2)), Ok(RankInfo { nccl: 22805, ..info(3) })];
        refused(&all_infos, "rank 0 has 2.27.3, rank 2 has 2.28.5");
    }

    #[test]
    fn ranks_with_the_same_gpu_are_named() {
        let named = "ranks 1 and 3 have the same GPU, GPU-01010101-0101-0101-0101-010101010101";
        refused(&[Ok(info(2)), Ok(info(1)), Ok(info(3)), Ok(info(1))], named);
        let on = |host: &str| Ok(RankInfo { host: Some(host.into()), ..info(1) });
        refused(&[on("a"), on("a")], "ranks 0 and 1 have the same GPU");
        refused(&[on("a"), Ok(info(1))], "ranks 0 and 1 have the same GPU");
        assert!(check_compatible(&[on("a"), on("b")]).is_ok());
        let sharing = Ok(RankInfo { shares: true, ..info(1) });
        assert!(check_compatible(&[sharing.clone(), sharing.clone()]).is_ok());
        refused(&[sharing, Ok(info(1))], "ranks 0 and 1 have the same GPU");
        refused(&[on("a"), on("b"), on("a")], "ranks 0 and 2 have the same GPU");
        let hint = check_compatible(&[Ok(info(1)), Ok(info(1))]).unwrap_err().hint.unwrap_or_default();
        assert!(hint.contains("NCCL_HOSTID") && hint.contains("`share_devices = true`"), "{hint}");
    }

    #[test]
    fn the_longest_rank_info_fits() {
        let host = Some("\u{1}".repeat(TEXT));
        let info: Result<RankInfo, &str> =
            Ok(RankInfo { nccl: i32::MIN, gpu: GpuUuid([255; 16]), host, shares: false });
        assert!(serde_json::to_vec(&info).unwrap().len() <= INFO_SIZE);
    }
}
