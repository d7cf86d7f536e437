//! What becomes of a run of two nodes when a rank or a node of it fails.

use crate::common::*;
use crate::pair::*;
use crate::trial::{Busy, SHUTDOWN};
use rustix::process::Signal;

#[test]
fn two_nodes_train_as_one_and_end_together() {
    let _alone = alone();
    let pair = Pair::new(2, "2");
    let [mut first, mut second] = pair.both("", &TCP);
    assert_end(&mut first, 0);
    let told = assert_end(&mut second, 0);
    assert!(told.starts_with("node 1 of 2: ranks 2 to 3 of 4, generation 1\n"), "{told}");
    assert!(pair.trial.bits() == pair.whole(&[]).bits(), "model or optimizer differ");
    pair.trial.assert_nothing_is_left("two nodes");
}

#[test]
fn a_worker_that_dies_on_either_node_restarts_both() {
    let _alone = alone();
    let whole = Pair::new(2, "2").whole(&[]);
    for rank in [1, 2] {
        let pair = Pair::new(2, "2");
        let fault = format!("kill:rank={rank},phase=forward,step=5,generation=1");
        // The save of step 4 is over before anybody begins with step 5.
        let flags = [&TCP[..], &["--max-restarts", "1", "--set", "checkpoint.async=false"]].concat();
        let [mut first, mut second] = pair.both(&fault, &flags);
        let told = assert_end(&mut first, 0);
        let blamed =
            told.lines().any(|l| l.starts_with(&format!("rank {rank} of 4 ")) && l.contains("SIGKILL"));
        assert!(blamed && told.contains("\nattempt 2/2, generation 2, resumes at step 4\n"), "{told}");
        assert!(assert_end(&mut second, 0).contains("generation 2"));
        assert!(pair.trial.bits() == whole.bits(), "model or optimizer differ");
        pair.trial.assert_nothing_is_left("a worker of two nodes");
    }
}

pub fn the_right_rank_is_blamed_wherever_it_is(busy: Busy) {
    // Where a node has but one rank, nobody else there notices that it hangs.
    let two = [("kill", 3, 90), ("stop", 3, 91), ("stop", 0, 91), ("exit=78", 2, 78)].map(|case| (2, case));
    let one = [("stop", 0, 91), ("stop", 1, 91)].map(|case| (1, case));
    busy.at_once(two.into_iter().chain(one), |(nproc, (deed, rank, code)), busy| {
        let pair = Pair::new(nproc, "2");
        let fault = format!("{deed}:rank={rank},phase=forward,step=3");
        let mut nodes = pair.both(&fault, &["--set", "distributed.timeout=30", "--set", SHUTDOWN]);
        let mut ended = || nodes.iter_mut().all(|n| n.child.try_wait().expect("it is our child").is_some());
        within(HUNG, || pair.trial.has_struck(rank) || ended());
        drop(busy);
        for node in &mut nodes {
            let told = assert_end(node, code);
            assert!(
                told.contains(&format!("error: rank {rank} of {} ", 2 * nproc)),
                "{deed} of rank {rank}: {told}"
            );
        }
        pair.trial.assert_nothing_is_left(deed);
    });
}

/// SIGKILL to one node's supervisor; the same command joins the run again.
#[test]
fn a_restarted_node_gives_the_same_bits() {
    let _alone = alone();
    let whole = Pair::new(1, "2").whole(&[]);
    for victim in [0, 1] {
        let pair = Pair::new(1, "2");
        let flags = [&TCP[..], &["--max-restarts", "2"]].concat();
        // Held, so that the kill never comes after the end.
        let [mut first, mut second] = pair.both("stop:rank=1,phase=forward,step=30,generation=1", &flags);
        pair.trains_to(20, &mut [&mut first, &mut second]);
        let (dead, other) = if victim == 0 { (&mut first, &mut second) } else { (&mut second, &mut first) };
        kill(dead.child.id(), Signal::KILL);
        assert!(dead.end(HUNG).is_some_and(|s| s.code().is_none()));
        let mut again = pair.start(victim, "", &flags);
        assert_end(&mut again, 0);
        let told = assert_end(other, 0);
        let lost = if victim == 0 { "node 0 was lost" } else { "node 1 (" };
        assert!(told.contains(lost), "{told}");
        assert!(pair.trial.bits() == whole.bits(), "victim {victim}: model or optimizer differ");
        assert_eq!(results(&pair.trial.out), results(&whole.out), "victim {victim}");
        pair.trial.assert_nothing_is_left("a killed node");
    }
}

#[test]
fn a_lost_node_ends_a_run_without_restarts() {
    let _alone = alone();
    // Restarts do not help if node 0 does not return: a loss, and not a run whose nodes never met.
    let with_restarts = ["--max-restarts", "1", "--set", "launch.rejoin_timeout=1"];
    for (victim, flags, words) in [
        (0, &[][..], "was lost"),
        (1, &[], "was lost"),
        (0, &with_restarts, "in generation 1, and it did not return"),
    ] {
        let pair = Pair::new(1, "2");
        let mut nodes = pair.both("", &[&ENDLESS[..], flags].concat());
        let [first, second] = &mut nodes;
        pair.trains_to(5, &mut [first, second]);
        kill(nodes[victim].child.id(), Signal::KILL);
        let told = assert_end(&mut nodes[1 - victim], 90);
        assert!(told.contains(&format!("node {victim}")) && told.contains(words), "{told}");
        drop(nodes);
        assert!(within(HUNG, || processes(&pair.trial.out).is_empty()));
        pair.trial.assert_nothing_is_left("a lost node");
    }
}

#[test]
fn rejects_nodes_of_another_run() {
    let _alone = alone();
    let pair = Pair::new(1, "2");
    let init_timeout = |seconds: u32| ["--set".to_owned(), format!("distributed.init_timeout={seconds}")];
    let (patient, short) = (init_timeout(600), init_timeout(3));
    let (patient, short) = (patient.each_ref().map(String::as_str), short.each_ref().map(String::as_str));
    let mut first = pair.start(0, "", &patient);
    let mut other = pair.start(1, "", &[&patient[..], &["--set", "optimizer.lr=0.5"]].concat());
    let told = assert_end(&mut other, 93);
    assert!(told.contains("another plan") && told.contains("refused this node"), "{told}");
    assert!(told.contains(": optimizer.lr is 0.5 there and "), "{told}");
    let mut beyond = pair.start(2, "", &patient);
    assert!(assert_end(&mut beyond, 2).contains("--node-rank is 2 and --nnodes is 2"));
    kill(first.child.id(), Signal::TERM);
    assert_end(&mut first, 75);
    // In one run node 1 never comes, in the other node 0.
    let pairs = [pair, Pair::new(1, "2")];
    let mut nodes = [0, 1].map(|node| pairs[node].start(node, "", &short));
    let told = assert_end(&mut nodes[0], 93);
    assert!(told.contains("only 1 of 2 nodes connected in time; missing: node 1"), "{told}");
    let told = assert_end(&mut nodes[1], 93);
    assert!(told.contains("node 1 could not reach node 0 at "), "{told}");
}
