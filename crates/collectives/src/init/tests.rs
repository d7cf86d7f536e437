//! Groups of threads and of processes that a launcher's variables describe.

use super::*;
use crate::testing::{HANG, Port};
use crate::{CommErrorKind, ReduceOp};
use std::process::{Child, Command, Stdio};
use std::thread;

/// Names the case that a process of these tests plays.
const RANK_OF: &str = "DDP_RUN_TEST_INIT";

/// Options of a rank under a script that sets `vars`, which come first.
fn options(rank: usize, world: usize, port: &Port, vars: &[(&str, &str)]) -> Options {
    let own = [("RANK", rank), ("WORLD_SIZE", world), ("MASTER_PORT", port.number().into())];
    let own = own.map(|(name, value)| (name, value.to_string()));
    let rest = [("MASTER_ADDR", "127.0.0.1"), ("DDP_RUN_SECRET", "a secret of this test")];
    let all = vars.iter().chain(&rest).map(|(name, value)| (*name, (*value).to_owned())).chain(own);
    let all: Vec<_> = all.collect();
    let get = |name: &str| all.iter().find(|(set, _)| *set == name).map(|(_, value)| value.clone());
    let mut options = Options::from_lookup(&get).unwrap();
    options.init_timeout = HANG;
    options
}

fn init_all(all: Vec<Options>) -> Vec<Result<Arc<dyn ProcessGroup>, CommError>> {
    let threads: Vec<_> = all.into_iter().map(|options| thread::spawn(|| init(options))).collect();
    threads.into_iter().map(|rank| rank.join().unwrap()).collect()
}

/// The sum of 1, 2, … over the ranks of `group`.
fn sum_of_ranks(group: &dyn ProcessGroup) -> f32 {
    let mut sum = [group.rank() as f32 + 1.0];
    group.all_reduce((&mut sum[..]).into(), ReduceOp::Sum).unwrap();
    sum[0]
}

fn assert_group_of(world: usize, groups: Vec<Result<Arc<dyn ProcessGroup>, CommError>>) {
    let expected = (world * (world + 1) / 2) as f32;
    thread::scope(|scope| {
        for (rank, group) in groups.into_iter().enumerate() {
            scope.spawn(move || {
                let group = group.unwrap();
                assert_eq!((group.rank(), group.world_size()), (rank, world));
                assert_eq!(sum_of_ranks(&*group), expected);
            });
        }
    });
}

#[test]
fn ranks_meet_at_an_address_and_through_a_file() {
    let (port, folder) = (Port::on_loopback(), tempfile::tempdir().unwrap());
    let file = format!("file://{}", folder.path().join("meet").display());
    for vars in [vec![], vec![("DDP_RUN_RDZV_ENDPOINT", &*file)]] {
        assert_group_of(3, init_all((0..3).map(|rank| options(rank, 3, &port, &vars)).collect()));
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "the file is removed");
}

#[test]
fn a_single_rank_needs_no_address_and_no_key() {
    let group = init(Options::new(0, 1)).unwrap();
    assert_eq!((group.backend(), sum_of_ranks(&*group)), ("solo", 1.0));
}

#[test]
fn incomplete_options_are_reported() {
    let port = Port::on_loopback();
    let without = |change: fn(&mut Options)| {
        let mut options = options(0, 2, &port, &[]);
        change(&mut options);
        let error = init(options).err().expect("incomplete");
        assert!(error.hint.is_some(), "{error}");
        (error.kind, error.message)
    };
    let (kind, message) = without(|options| options.endpoint = None);
    assert_eq!((kind, &*message), (CommErrorKind::Configuration, "rank 0 of 2 has no endpoint"));
    let (kind, message) = without(|options| options.key = None);
    assert_eq!(kind, CommErrorKind::Configuration);
    assert!(message.contains("no secret"), "{message}");
    let short = [("DDP_RUN_SECRET", "short")];
    let error = init(options(0, 2, &port, &short)).err().expect("a short key");
    assert!(error.message.starts_with("DDP_RUN_SECRET has 5 characters; at least 16"), "{error}");
}

#[test]
fn a_rank_with_another_secret_is_not_let_in() {
    let port = Port::on_loopback();
    let foreign = options(1, 2, &port, &[("DDP_RUN_SECRET", "a secret of another run")]);
    let rank_0 = options(0, 2, &port, &[]);
    let rank_0 = thread::spawn(|| init(rank_0));
    let error = init(foreign).err().expect("it has another secret");
    assert_eq!(error.kind, CommErrorKind::Rendezvous);
    assert!(error.message.contains("rejected rank 1's proof"), "{error}");
    let rank_1 = init(options(1, 2, &port, &[]));
    assert_group_of(2, vec![rank_0.join().unwrap(), rank_1]);
}

/// The old rank 0 is still there when the ranks of the next generation come.
#[test]
fn ranks_of_an_earlier_generation_do_not_take_part() {
    let port = Port::on_loopback();
    let restarted = [("TORCHELASTIC_RESTART_COUNT", "1")];
    let old = options(0, 2, &port, &[]);
    let old = thread::spawn(|| init(old));
    let rank_1 = options(1, 2, &port, &restarted);
    let rank_1 = thread::spawn(|| init(rank_1));
    let error = old.join().unwrap().err().expect("its generation is over");
    assert!(error.message.contains("rank 0 is a process of an earlier start"), "{error}");
    let rank_0 = init(options(0, 2, &port, &restarted));
    assert_group_of(2, vec![rank_0, rank_1.join().unwrap()]);
}

/// What `processes_join_by_their_environment` starts.
#[test]
fn a_rank_of_another_test() {
    if std::env::var_os(RANK_OF).is_none() {
        return;
    }
    let group = init(Options::from_env().unwrap()).unwrap();
    println!("rank {} of {}: {}", group.rank(), group.world_size(), sum_of_ranks(&*group));
}

fn start(rank: usize, world: usize, port: &Port) -> Child {
    let name = format!("{}::a_rank_of_another_test", module_path!().split_once("::").unwrap().1);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([&*name, "--exact", "--nocapture"]).env(RANK_OF, "1").stdout(Stdio::piped());
    command.env("RANK", rank.to_string()).env("WORLD_SIZE", world.to_string());
    command.env("MASTER_ADDR", "localhost").env("MASTER_PORT", port.to_string());
    for other in
        ["LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID", "DDP_RUN_RDZV_ENDPOINT", "DDP_RUN_PORT"]
    {
        command.env_remove(other);
    }
    command.env("DDP_RUN_SECRET", "a secret of these processes").spawn().unwrap()
}

#[test]
fn processes_join_by_their_environment() {
    let port = Port::on_loopback();
    let ranks: Vec<Child> = (0..3).map(|rank| start(rank, 3, &port)).collect();
    for (rank, child) in ranks.into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(&format!("rank {rank} of 3: 6")), "{said}");
    }
}
