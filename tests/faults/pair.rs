//! Two supervisors as two nodes: on two hosts made of network namespaces where this user may make them, else on one. `ip netns
//! exec` becomes the command, so its process is the supervisor.

use crate::common::*;
use crate::hosts::{ADDRESSES, Hosts, Rank};
use crate::trial::*;
use std::fs::File;
use std::process::Stdio;

/// Long enough for something to happen meanwhile, with a checkpoint at every second step.
pub const LONG: [&str; 4] = ["--set", "train.max_steps=120", "--set", "epochs=60"];
/// Until it is stopped.
pub const ENDLESS: [&str; 4] = ["--set", "train.max_steps=1000000000", "--set", "epochs=1000000000"];
pub const TCP: [&str; 2] = ["--set", "distributed.transport=\"tcp\""];

/// A run of two nodes, with `nproc` workers each, that meet at a port of their own.
pub struct Pair {
    pub trial: Trial,
    hosts: Option<Hosts>,
    nproc: usize,
    nodes: &'static str,
    /// Where node 0 listens, if it is on this host.
    pub port: Port,
}

impl Pair {
    pub fn new(nproc: usize, nodes: &'static str) -> Self {
        Self { trial: Trial::new(2 * nproc), hosts: Hosts::new(), nproc, nodes, port: Port::new() }
    }

    /// Without namespaces in any case.
    pub fn on_one_host(nproc: usize, nodes: &'static str) -> Self {
        Self { hosts: None, ..Self::new(nproc, nodes) }
    }

    fn endpoint(&self) -> String {
        match &self.hosts {
            // Nobody else is in the namespace.
            Some(_) => format!("{}:29400", ADDRESSES[0]),
            None => format!("127.0.0.1:{}", self.port),
        }
    }

    pub fn start(&self, node: usize, fault: &str, flags: &[&str]) -> Rank {
        let mut train = self.trial.command();
        train.args(["--nnodes", self.nodes, "--node-rank", &node.to_string()]);
        train.args(["--rdzv-endpoint", &self.endpoint()]);
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

    pub fn both(&self, fault: &str, flags: &[&str]) -> [Rank; 2] {
        [self.start(0, fault, flags), self.start(1, fault, flags)]
    }

    /// Waits until the run has `steps` behind it; what has ended meanwhile is told.
    #[track_caller]
    pub fn trains_to(&self, steps: u64, nodes: &mut [&mut Rank]) {
        let done = || {
            let last = step_events(&self.trial.out).pop();
            last.and_then(|e| e["step"].as_u64()).unwrap_or(0)
        };
        let mut over = false;
        let came = within(RUN_HUNG, || {
            over = nodes.iter_mut().any(|n| n.child.try_wait().expect("it is our child").is_some());
            over || done() >= steps
        });
        let told: Vec<String> = nodes.iter().map(|n| n.told()).collect();
        assert!(came && !over, "at step {} of {steps}:\n{}", done(), told.join("\n---\n"));
    }

    /// The bits of a run of one node that nothing happened to.
    pub fn whole(&self, flags: &[&str]) -> Trial {
        let whole = Trial::new(self.trial.world);
        // As between hosts: sums in one order.
        let flags = [&LONG[..], &TCP, flags].concat();
        assert_eq!(whole.run("", &flags).code, Some(0));
        whole
    }
}

#[track_caller]
pub fn assert_end(node: &mut Rank, code: i32) -> String {
    let status = node.end(RUN_HUNG);
    let told = node.told();
    assert_eq!(status.unwrap_or_else(|| panic!("hangs:\n{told}")).code(), Some(code), "{told}");
    told
}
