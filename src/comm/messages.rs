//! The texts of failures that several engines report, worded for every rank.

use super::header::Header;
use super::rendezvous::name_ranks;
use std::time::Duration;

pub(super) fn aborted(rank: usize, why: &str) -> String {
    format!("rank {rank} aborted: {why}")
}

pub(super) fn panicked(rank: usize) -> String {
    format!("rank {rank} panicked in a collective")
}

pub(super) fn invalid_call(rank: usize, why: &str) -> String {
    format!("rank {rank} made an invalid call: {why}")
}

/// The connection to `peer` has ended, as rank `me` has detected.
pub(super) fn disconnected(peer: usize, how: &str, me: usize) -> String {
    format!("rank {peer} disconnected: {how} (detected by rank {me})")
}

/// `peer` has said goodbye, and rank `me` is still in a call that needs it.
pub(super) fn left(peer: usize, me: usize) -> String {
    format!("rank {peer} left the process group while rank {me} still needed it")
}

pub(super) fn invalid_message(peer: usize, me: usize) -> String {
    format!("rank {peer} sent an invalid message (detected by rank {me})")
}

pub(super) fn other_run(peer: usize) -> String {
    format!("rank {peer} sent a message of a different run or generation")
}

/// Two ranks and their calls. Calls that read alike differ in their algorithm.
pub(super) fn mismatch(mut sides: [(usize, String); 2]) -> String {
    sides.sort();
    let [(a, call_a), (b, call_b)] = sides;
    let hint = if call_a == call_b { " with a different algorithm" } else { "" };
    format!("collective calls do not match: rank {a} called {call_a}, rank {b} called {call_b}{hint}")
}

/// A call of an engine that has passed its deadline.
pub(super) fn overdue(call: &str, time_limit: Duration) -> String {
    format!("{call} did not complete within {time_limit:?} (timeout)")
}

/// At the deadline of a call, some ranks have not answered rank `me`.
pub(super) fn no_response(ranks: &[usize], time_limit: Duration, me: usize) -> String {
    let ranks = name_ranks(ranks);
    format!(
        "{ranks} did not respond after {time_limit:?} (timeout): stopped, or busy outside of collectives (probed by rank \
         {me})"
    )
}

/// At the deadline of a call, all ranks have answered.
pub(super) fn no_progress(me: usize, awaited: &str, call: &Header, time_limit: Duration) -> String {
    format!("no progress after {time_limit:?} (timeout): rank {me} is waiting for {awaited} in {call}")
}

#[cfg(test)]
mod tests {
    use super::super::gloo::GlooOptions;
    use super::super::header::tests::sample;
    use super::super::header::{Header, Operation};
    use super::super::probe::Probe;
    use super::super::rendezvous;
    use super::super::{Call, GpuUuid, Phase, Place, ReduceOp, on_one_gpu};
    use super::*;
    use std::time::Instant;

    /// Calls, their arguments, and failures of calls.
    fn collectives() -> Vec<String> {
        let calls = Operation::ALL.map(|operation| Header { operation, root: 2, tag: 9, ..sample() });
        let mut all = calls.map(|call| call.to_string()).to_vec();
        let (mut i, mut f, block) = ([0i32; 6], [0f32; 7], [0f32; 2]);
        let arguments = [
            Call::AllReduce { buf: (&mut i[..]).into(), op: ReduceOp::Mean }.check(1, 3),
            Call::Broadcast { buf: (&mut i[..]).into(), root: 3 }.check(1, 3),
            Call::Send { buf: (&block[..]).into(), to: 5, tag: 0 }.check(1, 3),
            Call::Send { buf: (&block[..]).into(), to: 1, tag: 0 }.check(1, 3),
            Call::AllGather { input: (&block[..]).into(), output: (&mut i[..]).into() }.check(1, 3),
            Call::AllGather { input: (&block[..]).into(), output: (&mut f[..]).into() }.check(1, 3),
        ];
        all.extend(arguments.map(|wrong| invalid_call(1, &wrong.unwrap_err().message)));
        let barrier = calls[5].to_string();
        let second = Duration::from_secs(1);
        all.extend([
            aborted(1, "disk full"),
            panicked(1),
            disconnected(2, "connection closed", 0),
            left(1, 0),
            invalid_message(1, 0),
            other_run(1),
            mismatch([(1, barrier.clone()), (0, calls[0].to_string())]),
            mismatch([(1, barrier.clone()), (0, barrier)]),
            overdue(&calls[0].to_string(), second),
        ]);
        all
    }

    /// The message at a deadline: first ranks 1 and 2 have not answered, then only rank 2, then none.
    fn timeouts() -> Vec<String> {
        let time_limit = Duration::from_millis(300);
        let mut probe = Probe::new(4, Instant::now(), time_limit, None);
        let place = Place { step: 7, phase: Phase::Backward };
        let other = Header { operation: Operation::Barrier, ..sample() };
        let mut all = Vec::new();
        for (peer, call) in [(3, sample()), (1, other), (2, sample())] {
            probe.record(peer, call, place);
            let last_seen = |p: usize| (p == 2).then(|| format!("rank {p} last entered {other}, {place}"));
            for awaited in [&[2][..], &[]] {
                let (culprit, message) =
                    probe.verdict((0, &sample()), time_limit, awaited, |_| false, last_seen);
                all.push(format!("{culprit:?} {message}"));
            }
        }
        all
    }

    fn setups() -> Vec<String> {
        let no_interface = GlooOptions { interface: Some("no-such0".into()), ..GlooOptions::default() };
        let no_interface = no_interface.address().unwrap_err().message;
        let gpus = [1, 2, 1, 1].map(|gpu| Some(GpuUuid([gpu; 16])));
        vec![
            no_interface.split_once("available: ").map_or_else(String::new, |(text, _)| text.to_owned()),
            on_one_gpu(&gpus, |_, _| false).unwrap(),
            rendezvous::Secret::from_hex("beef").unwrap_err().message,
        ]
    }

    /// After a deliberate change: `INSTA_UPDATE=always cargo test --lib comm::messages`, and read the diff.
    #[test]
    fn messages_of_failures() {
        let all = [collectives(), timeouts(), setups(), rendezvous::messages()].concat();
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(all.join("\n")) });
    }
}
