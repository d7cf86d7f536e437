//! Two hosts on one machine: network namespaces with two ranks each, joined by a cable. Ranks are started as a launcher
//! starts them, by their environment.

use crate::common::*;
use crate::trial::*;
use rustix::process::Signal;
use std::fs::{self, File};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Of a collective, in seconds: long enough that a rank which is only slow answers in time.
const TIMEOUT: &str = "distributed.timeout=30";
pub const ADDRESSES: [&str; 2] = ["10.213.47.1", "10.213.47.2"];

/// Namespaces that go with this guard; the cable is `eth0` in both.
pub struct Hosts {
    names: [String; 2],
}

impl Hosts {
    /// `None`, with a printed line, where this user may not make any.
    pub fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (of, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let names = ["a", "b"].map(|side| format!("ddp-{of}-{count}-{side}"));
        let hosts = Self { names };
        match hosts.lay_cable() {
            Ok(()) => Some(hosts),
            Err(why) => {
                println!("skipped: no network namespaces here: {why}");
                None
            }
        }
    }

    fn lay_cable(&self) -> Result<(), String> {
        let [a, b] = &self.names;
        for name in &self.names {
            ip(&["netns", "add", name])?;
        }
        ip(&["link", "add", "eth0", "netns", a, "type", "veth", "peer", "name", "eth0", "netns", b])?;
        for (name, address) in self.names.iter().zip(ADDRESSES) {
            ip(&["-n", name, "addr", "add", &format!("{address}/24"), "dev", "eth0"])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            ip(&["-n", name, "link", "set", "eth0", "up"])?;
        }
        Ok(())
    }

    pub fn cut(&self, host: usize) {
        ip(&["-n", &self.names[host], "link", "set", "eth0", "down"]).expect("the cable is ours");
    }

    /// `command`, on one of the hosts.
    pub fn on(&self, host: usize, command: &Command) -> Command {
        let mut there = Command::new("ip");
        there.args(["netns", "exec", &self.names[host]]).arg(command.get_program());
        there.args(command.get_args()).current_dir(env!("CARGO_MANIFEST_DIR"));
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => there.env(name, value),
                None => there.env_remove(name),
            };
        }
        there
    }

    /// Starts rank 0 and 1 on the first host, 2 and 3 on the second.
    fn start(&self, trial: &Trial, flags: &[&str]) -> Vec<Rank> {
        let ranks = (0..4usize).map(|rank| {
            let mut command = self.on(rank / 2, &trial.command());
            command.args(flags);
            command.env("RANK", rank.to_string()).env("LOCAL_RANK", (rank % 2).to_string());
            command.env("WORLD_SIZE", "4").env("LOCAL_WORLD_SIZE", "2");
            command.env("MASTER_ADDR", ADDRESSES[0]).env("MASTER_PORT", "29400");
            command.env("DDP_RUN_SECRET", "a secret of these four processes");
            let told = trial.out.with_file_name(format!("stderr-{rank}"));
            command.stdin(Stdio::null()).stdout(Stdio::null());
            command.stderr(File::create(&told).expect("the scratch folder is writable"));
            Rank { child: command.spawn().expect("ip starts"), told }
        });
        ranks.collect()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&["netns", "del", name]);
        }
    }
}

fn ip(args: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(args).stdin(Stdio::null()).output().map_err(|e| e.to_string())?;
    let told = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("ip {}: {told}", args.join(" "))) }
}

/// A process and what it said; killed with this.
pub struct Rank {
    pub child: Child,
    pub told: std::path::PathBuf,
}

impl Rank {
    pub fn told(&self) -> String {
        fs::read_to_string(&self.told).unwrap_or_default()
    }

    pub fn end(&mut self, deadline: Duration) -> Option<ExitStatus> {
        let mut status = None;
        within(deadline, || {
            status = self.child.try_wait().expect("it is our child");
            status.is_some()
        });
        status
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a run that would go on for hours, and returns when it trains.
fn training(hosts: &Hosts, trial: &Trial) -> Vec<Rank> {
    let flags = ["--unset", "train.max_steps", "--set", "epochs=100000", "--set", "save_every=\"never\""];
    let mut ranks = hosts.start(trial, &[&flags[..], &["--set", TIMEOUT]].concat());
    let mut over = false;
    let trains = within(HUNG, || {
        over = ranks.iter_mut().any(|r| r.child.try_wait().expect("ours").is_some());
        over || step_events(&trial.out).len() >= 3
    });
    let told: Vec<String> = ranks.iter().map(Rank::told).collect();
    assert!(trains && !over, "the run does not come to its third step:\n{}", told.join("\n---\n"));
    ranks
}

/// These ranks end with 91, since one of them has met the deadline, and each leaves its record; returns whom each of them names.
#[track_caller]
fn assert_end_at_deadline(trial: &Trial, ranks: &mut [Rank]) -> Vec<u64> {
    let (mut blamed, mut kinds) = (Vec::new(), Vec::new());
    for (number, rank) in ranks.iter_mut().enumerate() {
        let status = rank.end(HUNG);
        let told = rank.told();
        let status = status.unwrap_or_else(|| panic!("rank {number} hangs:\n{told}"));
        assert_eq!(status.code(), Some(91), "rank {number}: {told}");
        assert!(told.contains(&format!("collectives-rank-{number}.json")), "{told}");
        let record = trial.record(number).unwrap_or_else(|| panic!("rank {number} left no record"));
        blamed.push(record["error"]["peer"].as_u64().unwrap_or_else(|| panic!("no one is blamed: {record}")));
        kinds.push(record["error"]["kind"].as_str().unwrap_or_default().to_owned());
    }
    println!("ranks 0 to {} blame {blamed:?}: {kinds:?}", ranks.len() - 1);
    assert!(kinds.iter().any(|kind| kind == "timeout"), "{kinds:?}");
    blamed
}

/// The same bits over TCP, where both runs sum in one order; by each host's memory and the cable, all but the rounding.
#[test]
fn two_hosts_train_as_one() {
    let _alone = alone();
    let Some(hosts) = Hosts::new() else { return };
    let tcp = ["--set", "distributed.transport=\"tcp\""];
    let both = ["--set", "distributed.interface=\"eth0\"", "--set", "distributed.sockets=3"];
    let (one, two, mixed) = (Trial::new(4), Trial::new(4), Trial::new(4));
    assert_eq!(one.run("", &tcp).code, Some(0));
    for (trial, flags) in [(&two, &tcp[..]), (&mixed, &both[..])] {
        for (number, rank) in hosts.start(trial, flags).iter_mut().enumerate() {
            let status = rank.end(HUNG).unwrap_or_else(|| panic!("rank {number} hangs: {}", rank.told()));
            assert_eq!(status.code(), Some(0), "rank {number}: {}", rank.told());
        }
        trial.assert_nothing_is_left("two hosts");
    }
    assert_eq!(results(&two.out), results(&one.out));
    assert!(two.bits() == one.bits(), "model or optimizer differ");
    let losses = |trial: &Trial| -> Vec<f64> {
        let steps = step_events(&trial.out).into_iter();
        steps.map(|e| e["loss"].as_f64().expect("a loss")).collect()
    };
    let (one, mixed) = (losses(&one), losses(&mixed));
    assert_eq!(one.len(), mixed.len());
    assert!(one.iter().zip(&mixed).all(|(a, b)| (a - b).abs() < 1e-5), "{one:?} {mixed:?}");
}

pub fn a_cut_connection_ends_all_ranks_at_the_deadline(busy: Busy) {
    busy.at_once([(0, Hosts::new()), (1, Hosts::new())], |(side, hosts), busy| {
        let Some(hosts) = hosts else { return };
        let trial = Trial::new(4);
        let mut ranks = training(&hosts, &trial);
        hosts.cut(side);
        drop(busy);
        assert_end_at_deadline(&trial, &mut ranks);
        trial.assert_nothing_is_left("a cut cable");
    });
}

pub fn a_host_that_disappears_is_blamed_at_the_deadline(busy: Busy) {
    let Some(hosts) = Hosts::new() else { return };
    let trial = Trial::new(4);
    let mut ranks = training(&hosts, &trial);
    // The cable first: the kernel must not say goodbye for its processes.
    hosts.cut(1);
    ranks[2..].iter().for_each(|r| kill(r.child.id(), Signal::KILL));
    drop(busy);
    let blamed = assert_end_at_deadline(&trial, &mut ranks[..2]);
    assert!(blamed.iter().all(|rank| [2, 3].contains(rank)), "{blamed:?}: {}", ranks[0].told());
    ranks[2..].iter_mut().for_each(|r| assert!(r.end(HUNG).is_some_and(|s| s.code().is_none())));
    trial.assert_nothing_is_left("a host that disappeared");
}
