//! What a user reads of restarts, and of nodes that are refused or missing, as a snapshot.

use super::*;
use crate::nodes::events::{Attribution, NodeEnd, NodeFailure};
use crate::nodes::setup::Setup;
use crate::nodes::{KeySource, Limits, NodeRange, RdzvEndpoint};
use crate::{FailureCause, LocalLaunch};
use base::error::ErrorKind;

fn hello(host: &str) -> Hello {
    Hello {
        version: "1.0.0".into(),
        node_rank: Some(1),
        host: host.into(),
        nproc: 2,
        plan_hash: "0123456789abcdef".into(),
        keys: [("epochs", "3"), ("optimizer.lr", "0.1")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        terms: "--nnodes 2 and --max-restarts 1".into(),
        generation: 0,
        port: None,
    }
}

fn joined(member: Member, seat: Option<usize>) -> Event {
    Event::Joined { member, seat, host: format!("host{member}"), nproc: 2, generation: 0 }
}

/// What the policy's last actions tell a node or a user.
fn messages_of(limits: Limits, events: &[Event]) -> String {
    let (_, actions) =
        events.iter().fold(PolicyState::new(limits), |(state, _), event| state.step(event.clone()));
    let messages = actions.into_iter().filter_map(|action| match action {
        Action::Refuse { why, .. } => Some(why),
        Action::Announce { reason, missing, pause } => {
            Some(format!("{reason}\n{}", waiting_notice(&missing, pause)))
        }
        Action::Start(Generation { reason, .. }) => reason,
        Action::Finish { failure: Some(NodeFailure { message, hint, .. }), .. } => {
            Some(Error { hint, ..Error::new(ErrorKind::Rendezvous, message) }.to_string())
        }
        _ => None,
    });
    messages.collect::<Vec<_>>().join("\n")
}

fn restart_notices() -> String {
    let generation = |checkpoint| Generation {
        number: 3,
        attempt: 2,
        nodes: vec![],
        reason: Some("rank 1 was killed".into()),
        checkpoint,
    };
    [
        restart_notice(&generation(Some(480)), 4, true, None),
        restart_notice(&generation(None), 4, true, Some((1, 2))),
        waiting_notice(&[], Duration::from_secs(4)),
        waiting_notice(&[1, 3], Duration::ZERO),
    ]
    .join("\n")
}

fn refusals() -> String {
    let own = hello("first");
    let others = [
        Hello { version: "2.0.0".into(), ..hello("second") },
        Hello {
            plan_hash: "fedcba9876543210".into(),
            keys: [("optimizer.lr", "0.2"), ("seed", "1")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            ..hello("second")
        },
        Hello { terms: "--nnodes 3 and --max-restarts 0".into(), ..hello("second") },
    ];
    let unfit = others.map(|other| check_same_job(&own, &other).expect_err("it differs"));
    let (two, members) = (Limits::new(NodeRange::exactly(2)), [joined(0, Some(0)), joined(1, Some(1))]);
    let again = Event::Joined { member: 5, seat: Some(1), host: "host1".into(), nproc: 2, generation: 0 };
    let by_policy = [joined(5, Some(1)), again, joined(5, Some(2)), joined(5, None)];
    let by_policy = by_policy.map(|event| messages_of(two, &[&members[..], &[event]].concat()));
    [unfit.join("\n"), by_policy.join("\n")].join("\n")
}

fn losses_and_changes() -> String {
    let (two, elastic) = (Limits::new(NodeRange::exactly(2)), Limits::new(NodeRange { min: 1, max: 3 }));
    let members = [joined(0, Some(0)), joined(1, Some(1))];
    let ended = |member, end| Event::Ended { member, end, checkpoint: None };
    let restarts = Limits { max_restarts: 1, ..two };
    let killed = NodeFailure::new(FailureCause::Other, Attribution::Root, "rank 1 was killed");
    let killed = NodeFailure { rank: Some(1), ..killed };
    let lost = [&members[..], &[Event::Lost(1), ended(0, NodeEnd::Stopped)]].concat();
    let failed = [&members[..], &[ended(0, NodeEnd::Failed(killed)), Event::Lost(1)]].concat();
    let leaves = Event::StopRequested { member: 1, at_once: false };
    let elastic_members = [&members[..], &[Event::TimerFired(Timer::Settle)]].concat();
    let ends = [ended(0, NodeEnd::Stopped), ended(1, NodeEnd::Stopped)];
    [
        messages_of(two, &[joined(0, Some(0)), Event::TimerFired(Timer::Join)]),
        messages_of(
            two,
            &[joined(0, Some(0)), Event::Rejected("the reason".into()), Event::TimerFired(Timer::Join)],
        ),
        messages_of(elastic, &[Event::TimerFired(Timer::Join)]),
        messages_of(two, &lost),
        messages_of(restarts, &lost),
        messages_of(restarts, &[&failed[..], &[Event::TimerFired(Timer::Join)]].concat()),
        messages_of(elastic, &[&elastic_members[..], &[leaves], &ends].concat()),
        messages_of(elastic, &[&elastic_members[..], &[joined(2, None)], &ends].concat()),
    ]
    .join("\n\n")
}

/// Errors of a node that can't meet the others.
fn setup_errors() -> String {
    let endpoint = Some(RdzvEndpoint::Tcp { host: "n0".into(), port: 7 });
    let nodes = Nodes { limits: Limits::new(NodeRange::exactly(2)), ..Nodes::default() };
    let short = Some(KeySource::Env("short".to_owned().into()));
    let wrong = [
        Nodes { node_rank: Some(2), ..nodes.clone() },
        nodes.clone(),
        Nodes { endpoint: endpoint.clone(), ..nodes.clone() },
        Nodes { endpoint, node_rank: Some(1), key: short, ..nodes },
    ];
    let errors = wrong.map(|nodes| match Setup::prepare(&nodes) {
        Ok(_) => panic!("accepted: {:?} and {:?}", nodes.node_rank, nodes.endpoint),
        Err(e) => e.to_string(),
    });
    let none =
        LocalLaunch { nproc: 0, ..LocalLaunch::new(1, &(), Default::default()).expect("this program") };
    errors.join("\n\n") + "\n\n" + &Nodes::default().run(none).expect_err("no process").to_string()
}

#[test]
fn messages() {
    let parts = [
        ("restarts", restart_notices()),
        ("refused nodes", refusals()),
        ("lost nodes and changes", losses_and_changes()),
        ("setup fails", setup_errors()),
    ];
    insta::assert_snapshot!(parts.map(|(title, text)| format!("== {title}\n{text}\n")).join("\n"));
}
