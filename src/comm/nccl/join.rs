//! How the ranks of the control group form one communicator: each sends the others what it has (its *card*), all judge
//! the cards alike, rank 0's id is broadcast, and NCCL connects.

use super::NcclConfig;
use super::driver::{self, Context, Stream};
use super::engine::{Engine, Parts, blame, hear, overdue};
use super::library::{Communicator, Nccl, State, UniqueId};
use super::order::Order;
use super::version::Version;
use crate::comm::rendezvous::cut;
use crate::comm::{CommError, CommErrorKind, GpuUuid, ProcessGroup, on_one_gpu};
use crate::error::{Error, Result};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Bytes of a card on the wire, and of the longest text in it.
const CARD: usize = 4096;
const TEXT: usize = 600;
/// Pause between two checks of a communicator that is being formed.
const LOOK: Duration = Duration::from_millis(1);
/// How long NCCL may take to abort.
const ABORT: Duration = Duration::from_secs(5);
/// Maximum number of ranks that a message lists one by one.
const TOLD: usize = 8;

/// What the other ranks must know about a rank.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Card {
    /// From `ncclGetVersion`.
    nccl: i32,
    gpu: GpuUuid,
    /// NCCL_HOSTID: NCCL takes ranks with different values to be on different hosts, and lets them use the same GPU.
    host: Option<String>,
    /// NCCL_MULTI_RANK_GPU_ENABLE: NCCL itself lets ranks use the same GPU.
    shares: bool,
}

/// A rank's card, or why it has none.
type Hand = Result<Card, String>;

/// What a rank has before it joins.
struct Own {
    nccl: &'static Nccl,
    context: Context,
    stream: Stream,
    order: Order,
    card: Card,
}

impl Own {
    fn look(device: usize) -> Result<Self, String> {
        let context = Context::open(device)?;
        let nccl = Nccl::load()?;
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let card = Card {
            nccl: nccl.version().0,
            gpu: driver::uuid(device)?,
            host: variable("NCCL_HOSTID").map(|host| cut(&host, TEXT).to_owned()),
            shares: variable("NCCL_MULTI_RANK_GPU_ENABLE").is_some_and(|v| v != "0"),
        };
        Ok(Self { nccl, stream: context.stream()?, order: Order::choose(&context)?, card, context })
    }
}

/// Joins all ranks of `control` on their devices, within `init_timeout`.
pub(super) fn join(control: Arc<dyn ProcessGroup>, config: &NcclConfig) -> Result<Engine> {
    let own = Own::look(config.device);
    let hand = own.as_ref().map(|own| own.card.clone()).map_err(Clone::clone);
    let hands = exchange(&*control, &hand)?;
    judge(&hands)?;
    // All hands are good, including this one.
    let Own { nccl, context, stream, order, .. } = own.map_err(Error::unavailable)?;
    let id = share_id(&*control, nccl)?;
    let communicator = form(&*control, nccl, id, config.init_timeout).map_err(at_the_start)?;
    if control.rank() == 0 {
        let (world, version, driver) =
            (control.world_size(), nccl.version(), context.driver().unwrap_or_default());
        tracing::info!(
            "nccl: {world} ranks joined by NCCL {version} (driver for CUDA {}.{}); collectives are ordered by {order}",
            driver / 1000,
            driver / 10 % 100
        );
    }
    let timeout = config.timeout;
    Ok(Engine::new(Parts { control, context, stream, order, communicator, timeout }))
}

/// A timeout before the first call is a failure of the rendezvous.
fn at_the_start(error: CommError) -> CommError {
    match error.kind {
        CommErrorKind::Timeout => CommError { kind: CommErrorKind::Rendezvous, ..error },
        _ => error,
    }
}

/// Every rank's hand, by rank.
fn exchange(control: &dyn ProcessGroup, hand: &Hand) -> Result<Vec<Hand>, CommError> {
    let hand = hand.as_ref().map_err(|why| cut(why, TEXT));
    // Numbers and short texts: never too long, and always serialisable.
    let mut bytes = serde_json::to_vec(&hand).unwrap_or_default();
    bytes.resize(CARD, b' ');
    let mut all = vec![0u8; CARD * control.world_size()];
    control.all_gather((&bytes[..]).into(), (&mut all[..]).into())?;
    let read = |card: &[u8]| serde_json::from_slice(card).unwrap_or_else(|e| Err(format!("unreadable: {e}")));
    Ok(all.chunks_exact(CARD).map(read).collect())
}

/// Whether these ranks can be joined; the answer is the same on all of them.
fn judge(hands: &[Hand]) -> Result<()> {
    let missing: Vec<String> = (hands.iter().enumerate())
        .filter_map(|(rank, hand)| hand.as_ref().err().map(|why| format!("rank {rank}: {why}")))
        .collect();
    if !missing.is_empty() {
        let told = missing[..missing.len().min(TOLD)].join("\n  ");
        return Err(Error::unavailable(format!("backend `nccl` cannot be used:\n  {told}"))
            .hint("`backend = \"gloo\"` needs no NCCL; `ddp-run env` shows what is available"));
    }
    let cards: Vec<&Card> = hands.iter().flatten().collect();
    let version = |rank: usize| Version(cards[rank].nccl);
    let other = (1..cards.len()).find(|r| version(*r).major_minor() != version(0).major_minor());
    if let Some(other) = other {
        return Err(Error::unavailable(format!(
            "ranks have different versions of NCCL: rank 0 has {}, rank {other} has {}",
            version(0),
            version(other)
        ))
        .hint("different versions of NCCL cannot communicate: install the same version on every node"));
    }
    let gpus: Vec<Option<GpuUuid>> = cards.iter().map(|card| Some(card.gpu)).collect();
    let Some(shared) = on_one_gpu(&gpus, |a, b| nccl_lets_share(cards[a], cards[b])) else { return Ok(()) };
    Err(Error::unavailable(shared.to_string()).hint(
        "NCCL needs a GPU for each rank, whatever `share_devices` says: start fewer, or have those that share one use \
         `backend = \"gloo\"`. In tests, a different NCCL_HOSTID for each rank, together with `share_devices = true`, \
         makes NCCL allow it",
    ))
}

/// Whether NCCL lets two ranks share one GPU, which it normally refuses.
fn nccl_lets_share(a: &Card, b: &Card) -> bool {
    let apart = a.host.is_some() && b.host.is_some() && a.host != b.host;
    apart || a.shares && b.shares
}

/// Rank 0 creates the id; all ranks get it, or rank 0's error.
fn share_id(control: &dyn ProcessGroup, nccl: &Nccl) -> Result<UniqueId, CommError> {
    let mut id = UniqueId([0; 128]);
    if control.rank() == 0 {
        id = nccl.unique_id().map_err(|why| blame(control, &why))?;
    }
    control.broadcast((&mut id.0[..]).into(), 0)?;
    Ok(id)
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
            Ok(State::Ready) => return Ok(communicator),
            Ok(State::InProgress) => {}
            Err(why) => break blame(control, &why),
        }
        if let Err(error) = hear(control) {
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
    use crate::error::ExitCode;

    fn card(gpu: u8) -> Card {
        Card { nccl: 22703, gpu: GpuUuid([gpu; 16]), host: None, shares: false }
    }

    #[track_caller]
    fn refused(hands: &[Hand], says: &str) {
        let error = judge(hands).unwrap_err();
        assert_eq!(error.code, ExitCode::Unavailable);
        assert!(error.message.contains(says), "{error}");
    }

    #[test]
    fn ranks_with_a_gpu_each_are_joined() {
        assert!(judge(&[Ok(card(1)), Ok(card(2)), Ok(Card { nccl: 22705, ..card(3) })]).is_ok());
    }

    #[test]
    fn what_a_rank_lacks_is_told_to_all() {
        refused(
            &[Ok(card(1)), Err("no NCCL".into()), Err("no GPU".into())],
            "rank 1: no NCCL\n  rank 2: no GPU",
        );
    }

    #[test]
    fn versions_that_differ_in_more_than_the_patch_are_refused() {
        let hands = [Ok(card(1)), Ok(card(2)), Ok(Card { nccl: 22805, ..card(3) })];
        refused(&hands, "rank 0 has 2.27.3, rank 2 has 2.28.5");
    }

    #[test]
    fn ranks_with_the_same_gpu_are_named() {
        let named = "ranks 1 and 3 have the same GPU, GPU-01010101-0101-0101-0101-010101010101";
        refused(&[Ok(card(2)), Ok(card(1)), Ok(card(3)), Ok(card(1))], named);
        let on = |host: &str| Ok(Card { host: Some(host.into()), ..card(1) });
        refused(&[on("a"), on("a")], "ranks 0 and 1 have the same GPU");
        refused(&[on("a"), Ok(card(1))], "ranks 0 and 1 have the same GPU");
        assert!(judge(&[on("a"), on("b")]).is_ok());
        let sharing = Ok(Card { shares: true, ..card(1) });
        assert!(judge(&[sharing.clone(), sharing.clone()]).is_ok());
        refused(&[sharing, Ok(card(1))], "ranks 0 and 1 have the same GPU");
        refused(&[on("a"), on("b"), on("a")], "ranks 0 and 2 have the same GPU");
        let hint = judge(&[Ok(card(1)), Ok(card(1))]).unwrap_err().hint.unwrap_or_default();
        assert!(hint.contains("NCCL_HOSTID") && hint.contains("`share_devices = true`"), "{hint}");
    }

    #[test]
    fn the_longest_hand_fits() {
        let host = Some("\u{1}".repeat(TEXT));
        let card: Result<Card, &str> =
            Ok(Card { nccl: i32::MIN, gpu: GpuUuid([255; 16]), host, shares: false });
        assert!(serde_json::to_vec(&card).unwrap().len() <= CARD);
    }
}
