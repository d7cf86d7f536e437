//! How a collective finds its place among the work of streams that this engine does not know: CubeCL creates its own and
//! shows none of them, but all are of the device's primary context.

use super::driver::{Context, Event, Stream};

/// With these, NCCL copies on streams of its own in the midst of a collective. A fence would hold them up until the
/// collective is done, which waits for them.
const COPIES: [&str; 2] = ["NCCL_P2P_USE_CUDA_MEMCPY", "NCCL_SHM_USE_CUDA_MEMCPY"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// By events of the whole context: nobody waits but the device.
    Events,
    /// The host waits: for the context before a collective, for the collective at a fence. Drivers before CUDA 12.5.
    Host,
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Events => "events of the device's context",
            Self::Host => "waits of the host",
        })
    }
}

impl Order {
    /// What the driver can do: an event of the whole context is set and waited for, for a try.
    pub(super) fn choose(context: &Context) -> Result<Self, String> {
        let event = context.event()?;
        let tried = match COPIES.iter().find(|name| std::env::var(name).is_ok_and(|value| value != "0")) {
            Some(name) => Err(format!("{name} is set")),
            None => context.record(&event).and_then(|()| context.wait(&event)),
        };
        Ok(match tried {
            Ok(()) => Self::Events,
            Err(why) => {
                tracing::warn!(
                    "nccl: {why}, so the host waits for the device before and after its collectives"
                );
                Self::Host
            }
        })
    }

    /// From now on `stream` comes after all work that has been launched in `context` so far; `event` says when that is
    /// done, if the device has yet to get there.
    pub(super) fn begin(
        self,
        context: &Context,
        stream: &Stream,
        event: Event,
    ) -> Result<Option<Event>, String> {
        match self {
            Self::Events => {
                context.record(&event)?;
                stream.wait(&event)?;
                Ok(Some(event))
            }
            Self::Host => context.synchronize().map(|()| None),
        }
    }
}
