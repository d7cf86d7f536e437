//! The texts of failures that several engines report, worded for every rank.

use super::StepPhase;
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

/// Two ranks and their calls.
pub(super) fn mismatch(mut sides: [(usize, Header); 2]) -> String {
    sides.sort_by_key(|(rank, _)| *rank);
    let [(a, call_a), (b, call_b)] = sides;
    let only_algorithm = call_a != call_b && Header { algorithm: call_b.algorithm, ..call_a } == call_b;
    let hint = if only_algorithm { " with a different algorithm" } else { "" };
    format!("collective calls do not match: rank {a} called {call_a}, rank {b} called {call_b}{hint}")
}

/// What a rank was doing when its group ended; follows the cause.
pub(super) fn was_in(rank: usize, call: &str, place: StepPhase) -> String {
    format!("; rank {rank} was in {call}, {place}")
}

/// A call of an engine that has passed its deadline.
pub(super) fn overdue(call: &str, time_limit: Duration) -> String {
    format!("{call} did not complete within {time_limit:?} (timeout)")
}

/// The same, where it is not known which rank is late.
pub(super) fn overdue_on(late: &str, me: usize) -> String {
    format!("{late} on rank {me}")
}

/// Calls of an engine on a device, at their deadline: some ranks have not answered rank `me`.
pub(super) fn silent(ranks: &[usize], me: usize) -> String {
    format!("{} did not respond (probed by rank {me})", name_ranks(ranks))
}

/// The same: ranks have answered that they have made fewer calls than rank `me`.
pub(super) fn behind(ranks: &[usize], me: usize) -> String {
    format!("rank {me} is waiting for {} to make this call", name_ranks(ranks))
}

/// The same: all ranks have answered, and have made as many calls, if these are counted.
pub(super) fn all_respond(counted: bool) -> String {
    format!("all ranks respond{}", if counted { " and have made this call" } else { "" })
}

/// How far a rank is, with the number of its calls on its device; follows the verdict.
pub(super) fn progress(rank: usize, calls: u64, place: StepPhase) -> String {
    match calls {
        0 => format!("; rank {rank} is at {place}"),
        _ => format!("; rank {rank} has made call {calls}, {place}"),
    }
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
    use super::super::header::{Algorithm, CallOperation, Header};
    use super::super::probe::Probe;
    use super::super::rendezvous;
    use super::super::{Call, GpuUuid, Phase, ReduceOp, on_one_gpu};
    use super::*;
    use std::time::Instant;

    /// Calls, their arguments, and failures of calls.
    fn collectives() -> Vec<String> {
        let calls = CallOperation::ALL.map(|operation| Header { operation, root: 2, tag: 9, ..sample() });
        let barrier = calls[5];
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
        all.extend([
            aborted(1, "disk full"),
            panicked(1),
            disconnected(2, "connection closed", 0),
            left(1, 0),
            invalid_message(1, 0),
            other_run(1),
            mismatch([(1, barrier), (0, calls[0])]),
            mismatch([(1, Header { algorithm: Algorithm::Tree, ..barrier }), (0, barrier)]),
            mismatch([(1, Header { run: 0, ..barrier }), (0, barrier)]),
            format!("{}{}", aborted(1, "disk full"), was_in(0, &barrier.to_string(), StepPhase::default())),
        ]);
        all
    }

    /// The message at a deadline: first ranks 1 and 2 have not answered, then only rank 2, then none.
    fn timeouts() -> Vec<String> {
        let time_limit = Duration::from_millis(300);
        let mut probe = Probe::new(4, Instant::now(), time_limit, None);
        let place = StepPhase { step: 7, phase: Phase::Backward };
        let other = Header { operation: CallOperation::Barrier, ..sample() };
        let mut all = Vec::new();
        for (peer, call) in [(3, sample()), (1, other), (2, sample())] {
            probe.record(peer, (call, place));
            let last_seen = |p: usize| (p == 2).then(|| format!("rank {p} last entered {other}, {place}"));
            for awaited in [&[2][..], &[]] {
                let (culprit, message) =
                    probe.verdict((0, &sample()), time_limit, awaited, |_| false, last_seen);
                all.push(format!("{culprit:?} {message}"));
            }
        }
        all
    }

    /// The message at the deadline of a call on a device, for each verdict.
    fn device_timeouts() -> Vec<String> {
        let late = overdue(&format!("{} by NCCL", sample()), Duration::from_secs(1));
        let place = StepPhase { step: 7, phase: Phase::Backward };
        let report = progress(1, 11, place) + &progress(2, 0, place);
        let verdicts =
            [silent(&[1, 2], 0), left(1, 0), behind(&[1], 0), all_respond(true), all_respond(false)];
        let mut all = verdicts.map(|verdict| format!("{late}: {verdict}{report}")).to_vec();
        all.push(overdue_on(&late, 0));
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

    /// After a deliberate change: `INSTA_UPDATE=always cargo test -p ddp-run-collectives messages`, and read the diff.
    #[test]
    fn messages_of_failures() {
        let all = [collectives(), timeouts(), device_timeouts(), setups(), rendezvous::messages()].concat();
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(all.join("\n")) });
    }
}
