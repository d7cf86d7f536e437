//! Two supervisors as two nodes: on two hosts made of network namespaces where this user may make them, else on one. `ip netns
//! exec` becomes the command, so its process is the supervisor.

use crate::common::*;
use crate::hosts::{ADDRESSES, Hosts, Rank};
use crate::restarted::restarts;
use crate::trial::*;
use rustix::process::Signal;
use std::fs::File;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

/// Long enough for something to happen meanwhile, with a checkpoint at every second step.
const LONG: [&str; 4] = ["--set", "train.max_steps=120", "--set", "epochs=60"];
/// For what takes a moment: a process's start, a signal that must come before the end.
const LONGER: [&str; 4] = ["--set", "train.max_steps=800", "--set", "epochs=400"];
/// Until it is stopped.
const ENDLESS: [&str; 4] = ["--set", "train.max_steps=100000", "--set", "epochs=100000"];

/// A run of two nodes, with `nproc` workers each, that meet at a port of their own.
struct Pair {
    trial: Trial,
    hosts: Option<Hosts>,
    nproc: usize,
    nodes: &'static str,
    port: u16,
}

impl Pair {
    fn new(nproc: usize, nodes: &'static str) -> Self {
        Self { trial: Trial::new(2 * nproc), hosts: Hosts::new(), nproc, nodes, port: free_port() }
    }

    fn start(&self, node: usize, fault: &str, flags: &[&str]) -> Rank {
        let address = if self.hosts.is_some() { ADDRESSES[0] } else { "127.0.0.1" };
        let mut train = self.trial.command();
        train.args(["--nnodes", self.nodes, "--node-rank", &node.to_string()]);
        train.args(["--rdzv-endpoint", &format!("{address}:{}", self.port)]);
        train.args(["--nproc-per-node", &self.nproc.to_string()]).args(LONG).args(flags);
        train.env("DDP_RUN_SECRET", "a secret of these two nodes").env("DDP_RUN_FAULT", fault);
        let mut command = match &self.hosts {
            Some(hosts) => hosts.on(node.min(1), &train),
            None => train,
        };
        let n = std::fs::read_dir(self.trial.out.with_file_name("")).map_or(0, Iterator::count);
        let told = self.trial.out.with_file_name(format!("stderr-{node}-{n}"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(&told).expect("the scratch folder is writable"));
        Rank { child: command.spawn().expect("the binary starts"), told }
    }

    fn both(&self, fault: &str, flags: &[&str]) -> [Rank; 2] {
        [self.start(0, fault, flags), self.start(1, fault, flags)]
    }

    /// Waits until the run has `steps` behind it; what has ended meanwhile is told.
    #[track_caller]
    fn trains_to(&self, steps: u64, nodes: &mut [&mut Rank]) {
        let done = || {
            let last = events(&self.trial.out).into_iter().rfind(|e| e["event"] == "step");
            last.and_then(|e| e["step"].as_u64()).unwrap_or(0)
        };
        let mut over = false;
        let came = within(HUNG, || {
            over = nodes.iter_mut().any(|n| n.child.try_wait().expect("it is our child").is_some());
            over || done() >= steps
        });
        let told: Vec<String> = nodes.iter().map(|n| n.told()).collect();
        assert!(came && !over, "at step {} of {steps}:\n{}", done(), told.join("\n---\n"));
    }

    /// The bits of a run of one node that nothing happened to.
    fn whole(&self, flags: &[&str]) -> Trial {
        let whole = Trial::new(self.trial.world);
        // As between hosts: sums in one order.
        let flags = [&LONG[..], &TCP, flags].concat();
        assert_eq!(whole.run("", &flags).code, Some(0));
        whole
    }
}

const TCP: [&str; 2] = ["--set", "distributed.transport=\"tcp\""];

#[track_caller]
fn assert_end(node: &mut Rank, code: i32) -> String {
    let status = node.end(HUNG);
    let told = node.told();
    assert_eq!(status.unwrap_or_else(|| panic!("hangs:\n{told}")).code(), Some(code), "{told}");
    told
}

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
        let flags = [&TCP[..], &["--max-restarts", "1"]].concat();
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

#[test]
fn the_right_rank_is_blamed_wherever_it_is() {
    let _alone = alone();
    // Where a node has but one rank, nobody else there notices that it hangs.
    let two = [("kill", 3, 90), ("stop", 3, 91), ("stop", 0, 91), ("exit=78", 2, 78)].map(|case| (2, case));
    let one = [("stop", 0, 91), ("stop", 1, 91)].map(|case| (1, case));
    for (nproc, (deed, rank, code)) in two.into_iter().chain(one) {
        let pair = Pair::new(nproc, "2");
        let fault = format!("{deed}:rank={rank},phase=forward,step=3");
        for mut node in pair.both(&fault, &["--set", "distributed.timeout=1"]) {
            let told = assert_end(&mut node, code);
            assert!(
                told.contains(&format!("error: rank {rank} of {} ", 2 * nproc)),
                "{deed} of rank {rank}: {told}"
            );
        }
        pair.trial.assert_nothing_is_left(deed);
    }
}

/// SIGKILL to one node's supervisor; the same command joins the run again.
#[test]
fn a_node_that_is_killed_and_started_again_costs_no_bit() {
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
    for victim in [0, 1] {
        let pair = Pair::new(1, "2");
        let mut nodes = pair.both("", &ENDLESS);
        let [first, second] = &mut nodes;
        pair.trains_to(5, &mut [first, second]);
        kill(nodes[victim].child.id(), Signal::KILL);
        let told = assert_end(&mut nodes[1 - victim], 90);
        assert!(told.contains(&format!("node {victim}")) && told.contains("was lost"), "{told}");
        drop(nodes);
        assert!(within(Duration::from_secs(5), || processes(&pair.trial.out).is_empty()));
        pair.trial.assert_nothing_is_left("a lost node");
    }
}

#[test]
fn a_stop_on_either_node_ends_both_and_they_go_on_later() {
    let _alone = alone();
    let whole = Pair::new(1, "2").whole(&LONGER);
    let flags = [&TCP[..], &LONGER].concat();
    for asked in [0, 1] {
        let pair = Pair::new(1, "2");
        let mut nodes = pair.both("", &flags);
        let [first, second] = &mut nodes;
        pair.trains_to(5, &mut [first, second]);
        kill(nodes[asked].child.id(), Signal::TERM);
        nodes.iter_mut().for_each(|node| drop(assert_end(node, 75)));
        pair.both("", &flags).iter_mut().for_each(|node| drop(assert_end(node, 0)));
        assert!(pair.trial.bits() == whole.bits(), "asked {asked}: model or optimizer differ");
    }
}

/// As a scheduler does it, which signals all nodes: the second node's signal comes after the first one's recall.
#[test]
fn a_stop_on_both_nodes_saves_as_well() {
    let _alone = alone();
    for pause in [0, 20, 60] {
        let pair = Pair::new(1, "2");
        // Steps that last, so that the second signal falls into one.
        let heavy = [
            "--set",
            "model.hidden=[2048, 2048]",
            "--set",
            "save_every=\"1000 steps\"",
            "--set",
            "batch_size=64",
        ];
        let mut nodes = pair.both("", &heavy);
        let [first, second] = &mut nodes;
        pair.trains_to(3, &mut [first, second]);
        kill(nodes[0].child.id(), Signal::USR1);
        std::thread::park_timeout(Duration::from_millis(pause));
        kill(nodes[1].child.id(), Signal::USR1);
        nodes.iter_mut().for_each(|node| drop(assert_end(node, 75)));
        newest_checkpoint(&pair.trial.out);
    }
}

#[test]
fn a_stop_while_the_ranks_meet_is_not_waited_for() {
    let _alone = alone();
    let pair = Pair::new(1, "2");
    let mut nodes = pair.both("stop:rank=1,phase=connect", &[]);
    let [first, second] = &mut nodes;
    let log = pair.trial.out.join("logs/rank-1.log");
    let waits = || std::fs::read_to_string(&log).is_ok_and(|text| text.contains("on purpose"));
    assert!(within(HUNG, waits), "{}\n{}", first.told(), second.told());
    let asked = std::time::Instant::now();
    kill(first.child.id(), Signal::TERM);
    // The one that is stopped can't hear it: `checkpoint.grace` is for that, or a second signal.
    assert!(within(HUNG, || children(first.child.id()).is_empty()), "{}", first.told());
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    kill(first.child.id(), Signal::TERM);
    nodes.iter_mut().for_each(|node| drop(assert_end(node, 75)));
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    pair.trial.assert_nothing_is_left("a stop while the ranks meet");
}

/// A former supervisor may still have the port. Whoever waits for it says so, and hears a stop.
#[test]
fn node_0_waits_for_a_port_that_is_in_use() {
    let _alone = alone();
    let pair = Pair { hosts: None, ..Pair::new(1, "2") };
    let taken = TcpListener::bind(("127.0.0.1", pair.port)).expect("the port is free");
    let waits = |node: &Rank| node.told().contains(" is in use: node 0 waits for it, 10 s at most\n");
    let mut first = pair.start(0, "", &[]);
    assert!(within(HUNG, || waits(&first)), "{}", first.told());
    let asked = std::time::Instant::now();
    kill(first.child.id(), Signal::TERM);
    assert_end(&mut first, 75);
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    let mut nodes = pair.both("", &[]);
    assert!(within(HUNG, || waits(&nodes[0])), "{}", nodes[0].told());
    drop(taken);
    nodes.iter_mut().for_each(|node| drop(assert_end(node, 0)));
}

/// Nodes that join while the ranks of those before them meet cost neither a restart nor the run.
#[test]
fn three_nodes_join_one_after_the_other() {
    let _alone = alone();
    for pause in [5, 40, 90] {
        let pair = Pair::new(1, "1:4");
        let mut first = pair.start(0, "", &ENDLESS);
        pair.trains_to(3, &mut [&mut first]);
        let mut others: Vec<Rank> = Vec::new();
        for node in 1..4 {
            others.push(pair.start(node, "", &ENDLESS));
            std::thread::park_timeout(Duration::from_millis(pause));
        }
        assert!(within(HUNG, || first.told().contains("now 4 nodes and 4 ranks")), "{}", first.told());
        let steps = events(&pair.trial.out).iter().filter(|e| e["event"] == "step").count() as u64;
        pair.trains_to(steps + 5, &mut [&mut first]);
        kill(first.child.id(), Signal::TERM);
        let told = assert_end(&mut first, 75);
        assert!(!told.contains("attempt 2"), "{told}");
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
    assert!(within(HUNG, || twice.told().contains("is still there")), "{}", twice.told());
    kill(twice.child.id(), Signal::TERM);
    assert!(twice.end(HUNG).is_some());
    let [first, second] = &mut nodes;
    let done = events(&pair.trial.out).iter().filter(|e| e["event"] == "step").count() as u64;
    pair.trains_to(done + 5, &mut [first, second]);
    kill(first.child.id(), Signal::TERM);
    nodes.iter_mut().for_each(|node| drop(assert_end(node, 75)));
}

/// MIN:MAX: a second node joins, is asked to leave, joins again and is killed; the first one finishes alone.
#[test]
fn nodes_come_and_go() {
    let _alone = alone();
    let pair = Pair::new(1, "1:2");
    let mut first = pair.start(0, "", &ENDLESS);
    pair.trains_to(5, &mut [&mut first]);
    let steps = || events(&pair.trial.out).iter().filter(|e| e["event"] == "step").count() as u64;
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
        told.contains("node 1 (") && told.contains(") joined\n") && told.contains("was asked to leave"),
        "{told}"
    );
    // None of this was a restart after a failure: there are none to spend.
    assert_eq!((restarts(&told), told.matches("attempt 1/1").count()), (4, 4), "{told}");
    let worlds: Vec<_> = events(&pair.trial.out).into_iter().filter(|e| e["event"] == "resume").collect();
    let worlds: Vec<u64> = worlds.iter().filter_map(|e| e["world"].as_u64()).collect();
    assert_eq!(worlds, [2, 1, 2, 1]);
    drop(third);
    assert!(within(Duration::from_secs(5), || processes(&pair.trial.out).is_empty()));
}

#[test]
fn who_does_not_belong_is_turned_away() {
    let _alone = alone();
    let pair = Pair::new(1, "2");
    let short = ["--set", "distributed.init_timeout=3"];
    let mut first = pair.start(0, "", &short);
    let mut other = pair.start(1, "", &[&short[..], &["--set", "optimizer.lr=0.5"]].concat());
    let told = assert_end(&mut other, 93);
    assert!(told.contains("another plan") && told.contains("turns this node away"), "{told}");
    let mut beyond = pair.start(2, "", &short);
    assert!(assert_end(&mut beyond, 2).contains("--node-rank is 2 and --nnodes is 2"));
    // The one that belongs never came.
    let told = assert_end(&mut first, 93);
    assert!(told.contains("1 of 2 nodes came together in time; missing: node 1"), "{told}");
    let mut late = pair.start(1, "", &short);
    let told = assert_end(&mut late, 93);
    assert!(told.contains("node 1 could not reach node 0 at "), "{told}");
}
