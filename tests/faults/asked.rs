//! Stop requests to the nodes of a run, and nodes that come and go.

use crate::common::*;
use crate::hosts::Rank;
use crate::pair::*;
use crate::restarted::restarts;
use rustix::process::Signal;
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// Rank 1 is the second node's. No rank gets further than one step beyond it.
const HELD: &str = "stop:rank=1,phase=forward,step=5";

#[test]
fn a_stop_on_either_node_ends_both_and_they_resume() {
    let _alone = alone();
    let whole = Pair::new(1, "2").whole(&[]);
    for asked in [0, 1] {
        let pair = Pair::new(1, "2");
        let mut nodes = pair.both(HELD, &TCP);
        let rank = held(&pair.trial.out);
        kill(nodes[asked].child.id(), Signal::TERM);
        release_when_asked_to_stop(rank);
        nodes.iter_mut().for_each(|node| drop(assert_end(node, 75)));
        pair.both("", &TCP).iter_mut().for_each(|node| drop(assert_end(node, 0)));
        assert!(pair.trial.bits() == whole.bits(), "asked {asked}: model or optimizer differ");
    }
}

/// As a scheduler does it, which signals all nodes: the second node's signal comes before the first one's recall, after it, or when the
/// ranks are on their way to the end.
#[test]
fn a_stop_on_both_nodes_saves_as_well() {
    let _alone = alone();
    for when in ["before", "after", "on the way"] {
        let pair = Pair::new(1, "2");
        let mut nodes = pair.both(HELD, &["--set", "save_every=\"1000 steps\""]);
        let rank = held(&pair.trial.out);
        let [first, second] = nodes.each_ref().map(|node| node.child.id());
        if when == "before" {
            kill(second, Signal::STOP);
            kill(second, Signal::USR1);
        }
        kill(first, Signal::USR1);
        if when == "before" {
            kill(second, Signal::CONT);
        }
        wait_until_asked_to_stop(rank);
        if when == "after" {
            kill(second, Signal::USR1);
        }
        kill(rank, Signal::CONT);
        if when == "on the way" {
            kill(second, Signal::USR1);
        }
        nodes.iter_mut().for_each(|node| drop(assert_end(node, 75)));
        newest_checkpoint(&pair.trial.out);
    }
}

#[test]
fn a_stop_during_the_rendezvous_ends_at_once() {
    let _alone = alone();
    let pair = Pair::new(1, "2");
    let patient = ["--set", "distributed.init_timeout=600", "--set", "launch.shutdown_timeout=600"];
    let mut nodes = pair.both("stop:rank=1,phase=connect", &patient);
    held(&pair.trial.out);
    let first = &nodes[0];
    assert!(within(HUNG, || !children(first.child.id()).is_empty()), "{}", first.told());
    kill(first.child.id(), Signal::TERM);
    // The one that is stopped can't hear it: `checkpoint.grace` is for that, or a second signal.
    assert!(within(HUNG, || children(first.child.id()).is_empty()), "{}", first.told());
    // Its supervisor has noted the time of the first: two signals within a quarter of a second are one.
    let later = Instant::now() + Duration::from_secs(1);
    within(HUNG, || Instant::now() >= later);
    kill(first.child.id(), Signal::TERM);
    nodes.iter_mut().for_each(|node| drop(assert_end(node, 75)));
    pair.trial.assert_nothing_is_left("a stop while the ranks meet");
}

/// A former supervisor may still have the port. Whoever waits for it says so, and hears a stop.
#[test]
fn node_0_waits_for_a_port_that_is_in_use() {
    let _alone = alone();
    let pair = Pair::on_one_host(1, "2");
    let taken = TcpListener::bind(("127.0.0.1", pair.port.number())).expect("the port is ours");
    let waits = |node: &Rank| node.told().contains(" is in use; node 0 waits up to 10 s for it\n");
    let mut first = pair.start(0, "", &[]);
    assert!(within(HUNG, || waits(&first)), "{}", first.told());
    kill(first.child.id(), Signal::TERM);
    assert_end(&mut first, 75);
    let mut nodes = pair.both("", &[]);
    assert!(within(HUNG, || waits(&nodes[0])), "{}", nodes[0].told());
    drop(taken);
    nodes.iter_mut().for_each(|node| drop(assert_end(node, 0)));
}

/// Nodes that join while the ranks of those before them meet cost neither a restart nor the run.
#[test]
fn three_nodes_join_one_after_the_other() {
    let _alone = alone();
    for all_at_once in [false, true] {
        let pair = Pair::new(1, "1:4");
        let mut first = pair.start(0, "", &ENDLESS);
        pair.trains_to(3, &mut [&mut first]);
        let (mut others, mut waited_for): (Vec<Rank>, Option<u32>) = (Vec::new(), None);
        for node in 1..4 {
            // The ranks of this generation wait for the new one until the next node has joined.
            let hold = node < 3 && !all_at_once;
            let fault = format!("stop:rank={node},phase=connect,generation={}", node + 1);
            others.push(pair.start(node, if hold { &fault } else { "" }, &ENDLESS));
            waited_for.take().into_iter().for_each(release_when_asked_to_stop);
            if hold {
                waited_for = Some(held(&pair.trial.out));
            }
        }
        assert!(within(HUNG, || first.told().contains("now 4 nodes and 4 ranks")), "{}", first.told());
        let steps = step_events(&pair.trial.out).len() as u64;
        pair.trains_to(steps + 5, &mut [&mut first]);
        kill(first.child.id(), Signal::TERM);
        // Without a restart, of which there are none to spend.
        assert_end(&mut first, 75);
        others.iter_mut().for_each(|node| drop(assert_end(node, 75)));
    }
}

#[test]
fn a_node_started_twice_leaves_the_first_alone() {
    let _alone = alone();
    let pair = Pair::new(1, "2");
    let mut nodes = pair.both("", &ENDLESS);
    let [first, second] = &mut nodes;
    pair.trains_to(5, &mut [first, second]);
    let mut twice = pair.start(1, "", &ENDLESS);
    assert!(within(HUNG, || twice.told().contains("is still connected")), "{}", twice.told());
    kill(twice.child.id(), Signal::TERM);
    assert!(twice.end(HUNG).is_some());
    let [first, second] = &mut nodes;
    let done = step_events(&pair.trial.out).len() as u64;
    pair.trains_to(done + 5, &mut [first, second]);
    kill(first.child.id(), Signal::TERM);
    nodes.iter_mut().for_each(|node| drop(assert_end(node, 75)));
}

/// MIN:MAX: a second node joins, is asked to leave, joins again and is killed; the first one finishes alone.
#[test]
fn nodes_join_and_leave() {
    let _alone = alone();
    let pair = Pair::new(1, "1:2");
    let mut first = pair.start(0, "", &ENDLESS);
    pair.trains_to(5, &mut [&mut first]);
    let steps = || step_events(&pair.trial.out).len() as u64;
    let mut second = pair.start(1, "", &ENDLESS);
    let joined = |first: &Rank, n: usize| first.told().matches("now 2 nodes and 2 ranks").count() >= n;
    assert!(within(HUNG, || joined(&first, 1)), "{}", first.told());
    pair.trains_to(steps() + 5, &mut [&mut first, &mut second]);
    kill(second.child.id(), Signal::TERM);
    assert_end(&mut second, 75);
    assert!(within(HUNG, || first.told().contains("now 1 node and 1 rank")), "{}", first.told());
    pair.trains_to(steps() + 5, &mut [&mut first]);
    let mut third = pair.start(1, "", &ENDLESS);
    assert!(within(HUNG, || joined(&first, 2)), "{}", first.told());
    pair.trains_to(steps() + 5, &mut [&mut first, &mut third]);
    kill(third.child.id(), Signal::KILL);
    assert!(within(HUNG, || first.told().contains("generation 5")), "{}", first.told());
    pair.trains_to(steps() + 5, &mut [&mut first]);
    kill(first.child.id(), Signal::TERM);
    let told = assert_end(&mut first, 75);
    assert!(
        told.contains("node 1 (") && told.contains(") joined\n") && told.contains("received a stop request"),
        "{told}"
    );
    // None of this was a restart after a failure: there are none to spend.
    assert_eq!((restarts(&told), told.matches("attempt 1/1").count()), (4, 4), "{told}");
    let worlds: Vec<_> = events(&pair.trial.out).into_iter().filter(|e| e["event"] == "resume").collect();
    let worlds: Vec<u64> = worlds.iter().filter_map(|e| e["world"].as_u64()).collect();
    assert_eq!(worlds, [2, 1, 2, 1]);
    let run = read_json(pair.trial.out.join("run.json"));
    assert_eq!((&run["world"], &run["backend"]), (&1.into(), &"solo".into()), "of the last generation");
    drop(third);
    assert!(within(HUNG, || processes(&pair.trial.out).is_empty()));
}
