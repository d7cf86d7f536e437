//! How a call runs in an engine whose calling threads do the work: arguments, sequence number, record, end. Independent
//! of the transport.

use super::call::Call;
use super::calls::CallLog;
use super::header::{CallOperation, Header};
use super::{CommError, CommErrorKind, messages};
use std::sync::Arc;
use std::time::Duration;
use tracing::span::EnteredSpan;

/// What a rank's other threads may use during a call.
pub(super) trait Shared {
    fn calls(&self) -> &CallLog;
    /// Ends the group, unless it has already ended; returns the first failure. `cause` is worded for every rank; what
    /// this rank was doing is added to its error.
    fn fail(&self, kind: CommErrorKind, culprit: Option<usize>, cause: &str) -> CommError;
}

pub(super) trait Engine {
    type Shared: Shared;
    fn shared(&self) -> &Arc<Self::Shared>;
    fn numbers(&mut self) -> &mut SequenceNumbers;
    /// Starts a call: resets the state of the last one, records the call, and handles the messages that have arrived
    /// since. An error if the group has ended.
    fn begin(&mut self, header: Header, time_limit: Option<Duration>) -> Result<(), CommError>;
    /// Ends the group on all ranks, unless it has already ended; returns the first failure.
    fn fail(&mut self, kind: CommErrorKind, culprit: Option<usize>, cause: &str) -> CommError {
        self.shared().fail(kind, culprit, cause)
    }
}

/// Sequence numbers: of group calls, and for each peer of the messages sent to it and received from it.
#[derive(Debug)]
pub(super) struct SequenceNumbers {
    group: u64,
    pairwise: Vec<[u64; 2]>,
}

impl SequenceNumbers {
    pub(super) fn new(world: usize) -> Self {
        Self { group: 0, pairwise: vec![[0; 2]; world] }
    }

    fn world_size(&self) -> usize {
        self.pairwise.len()
    }

    /// The sequence number of the call that begins: the next one of its kind.
    pub(super) fn next(&mut self, header: &Header) -> u64 {
        let peer = header.root as usize;
        let count = match header.operation {
            CallOperation::Send => &mut self.pairwise[peer][0],
            CallOperation::Recv => &mut self.pairwise[peer][1],
            _ => &mut self.group,
        };
        *count += 1;
        *count
    }
}

/// Ends the group if a call panics: its peers would wait for this rank.
struct PanicGuard<S: Shared>(Arc<S>);

impl<S: Shared> Drop for PanicGuard<S> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let rank = self.0.calls().rank;
            self.0.fail(CommErrorKind::Aborted, Some(rank), &messages::panicked(rank));
        }
    }
}

/// Runs one call, announced by `header`; with peers, `run` carries it out. Wrong arguments end the group on all ranks,
/// because the others would wait for this one; so does any error of `run`.
pub(super) fn execute<'a, E: Engine>(
    engine: &mut E,
    call: Call<'a>,
    header: Header,
    timeout: Duration,
    run: impl FnOnce(&mut E, Call<'a>) -> Result<(), CommError>,
) -> Result<(), CommError> {
    let guard = PanicGuard(engine.shared().clone());
    let (rank, world) = (guard.0.calls().rank, engine.numbers().world_size());
    if let Err(e) = call.check(rank, world) {
        return Err(engine.fail(e.kind, Some(rank), &messages::invalid_call(rank, &e.message)));
    }
    let sequence = engine.numbers().next(&header);
    let _span = call_span(guard.0.calls(), Header { sequence, ..header });
    engine.begin(Header { sequence, ..header }, call.time_limit(timeout))?;
    match world {
        1 => call.run_solo(),
        _ => run(engine, call).map_err(|e| engine.fail(e.kind, e.peer, &e.message))?,
    }
    guard.0.calls().finished();
    Ok(())
}

/// The tracing span of a call (level trace). It names rank and step, because a call may run on a thread outside of the
/// step's span.
pub(super) fn call_span(calls: &CallLog, header: Header) -> EnteredSpan {
    tracing::trace_span!(
        "collective",
        rank = calls.rank,
        step = calls.place().step,
        operation = header.operation.name(),
        sequence = header.sequence,
        bytes = header.count * header.dtype.size() as u64,
        algorithm = header.algorithm.name(),
    )
    .entered()
}

#[cfg(test)]
mod tests {
    use super::super::header::tests::sample;
    use super::*;

    #[test]
    fn calls_are_counted_by_kind_and_peer() {
        let mut numbers = SequenceNumbers::new(3);
        let mut next = |operation, root| numbers.next(&Header { operation, root, ..sample() });
        let calls = [
            (CallOperation::Barrier, 0, 1),
            (CallOperation::Broadcast, 2, 2),
            (CallOperation::Send, 2, 1),
            (CallOperation::Recv, 2, 1),
            (CallOperation::Send, 0, 1),
            (CallOperation::Send, 2, 2),
            (CallOperation::AllReduce, 0, 3),
        ];
        for (operation, root, number) in calls {
            assert_eq!(next(operation, root), number, "{operation:?} {root}");
        }
    }
}
