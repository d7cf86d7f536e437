//! How collectives are ordered among the work of streams that this engine does not know: CubeCL creates its own and
//! exposes none of them, but all belong to the device's primary context.

use super::driver::{CudaContext, CudaEvent, CudaStream};
use base::named;

/// With these set, NCCL copies on its own streams during a collective. A fence would delay the copies until the
/// collective is done, and the collective waits for the copies.
const COPIES: [&str; 2] = ["NCCL_P2P_USE_CUDA_MEMCPY", "NCCL_SHM_USE_CUDA_MEMCPY"];

named! {
    pub(super) enum StreamOrder {
        /// Only the device waits.
        Events = "events of the device's context",
        /// The host waits: for the context before a collective, for the collective at a fence. For drivers before CUDA 12.5.
        Host = "waits of the host",
    }
}

impl StreamOrder {
    /// What the driver supports, found by recording and waiting for an event of the whole context.
    pub(super) fn choose(context: &CudaContext) -> Result<Self, String> {
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

    /// Orders `stream` after all work launched in `context` so far. `event` marks the end of that work, if the device
    /// has yet to reach it.
    pub(super) fn begin(
        self,
        context: &CudaContext,
        stream: &CudaStream,
        event: CudaEvent,
    ) -> Result<Option<CudaEvent>, String> {
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
