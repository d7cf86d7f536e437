//! The start of a group: MPI is started and must agree with the environment about this process, and the ranks compare
//! what they are about to run.

use super::engine::Engine;
use super::init_thread::{InitThread, StartError};
use super::library;
use crate::execute::Engine as _;
use crate::header::{Algorithm, Header};
use crate::{CommError, CommErrorKind, MpiConfig};
use std::time::{Duration, Instant};

/// Maximum length of a plan hash.
const MAX_HASH: usize = 128;
/// Bytes of a rank's plan hash and ddp-run version on the wire: JSON, filled up with spaces.
const IDENTITY: usize = 1024;

/// Header fields that all calls of a group have in common.
pub(super) fn base() -> Header {
    Header::base(Algorithm::Library, 0, 0)
}

/// Starts MPI and returns an engine whose ranks are connected.
pub(super) fn start(config: &MpiConfig) -> Result<Engine, CommError> {
    let begun = Instant::now();
    let (init_thread, library) = InitThread::start(config.init_timeout).map_err(|e| match e {
        StartError::Timeout => CommError::rendezvous(format!(
            "MPI did not start within {:?} on rank {} of {} (timeout): other ranks may be missing",
            config.init_timeout, config.rank, config.world_size
        )),
        StartError::Failed(why) => CommError::rendezvous(format!("MPI cannot be started: {why}")),
    })?;
    let mut engine = Engine::new(init_thread, library, base());
    if (engine.me, engine.world) != (config.rank, config.world_size) {
        return Err(CommError::rendezvous(disagreement(&engine, config)));
    }
    if engine.world > 1 {
        let left = config.init_timeout.saturating_sub(begun.elapsed());
        compare(&mut engine, &config.plan_hash, left)
            .map_err(|e| CommError { kind: CommErrorKind::Rendezvous, ..e })?;
    }
    engine.shared.calls.clear();
    Ok(engine)
}

/// The usual cause is a program built with one MPI under the `mpirun` of another: each process is then alone.
fn disagreement(engine: &Engine, config: &MpiConfig) -> String {
    let library = library::version().unwrap_or_default();
    let hint = match engine.world {
        1 => format!("; start it with the mpirun of the MPI that it was built with ({library})"),
        _ => String::new(),
    };
    format!(
        "the environment says rank {} of {}, but MPI says rank {} of {}{hint}",
        config.rank, config.world_size, engine.me, engine.world
    )
}

fn compare(engine: &mut Engine, plan_hash: &str, time_limit: Duration) -> Result<(), CommError> {
    engine.begin(base(), Some(time_limit))?;
    let mut memory = [engine.memory(IDENTITY), engine.memory(IDENTITY * engine.world)];
    let mine: &mut [u8] = bytemuck::cast_slice_mut(&mut memory[0]);
    mine[..IDENTITY].copy_from_slice(&identity(plan_hash, env!("CARGO_PKG_VERSION"))?);
    let gathered = engine.library.all_gather(memory, IDENTITY);
    let memory = engine.complete(gathered, true, None)?;
    let all: &[u8] = &bytemuck::cast_slice(&memory[1])[..IDENTITY * engine.world];
    match conflict(all) {
        Some((rank, cause)) => Err(engine.fail(CommErrorKind::Rendezvous, Some(rank), &cause)),
        None => {
            engine.give_back(memory);
            Ok(())
        }
    }
}

fn identity(plan_hash: &str, version: &str) -> Result<Vec<u8>, CommError> {
    let length = plan_hash.len();
    if length > MAX_HASH {
        let why = format!("`{plan_hash}` has {length} bytes; the maximum is {MAX_HASH}");
        return Err(CommError::rendezvous(why));
    }
    let mut json = serde_json::to_vec(&[plan_hash, version]).expect("text");
    json.resize(IDENTITY, b' ');
    Ok(json)
}

/// The first rank that differs from rank 0, and how; equal on every rank.
fn conflict(all: &[u8]) -> Option<(usize, String)> {
    let read = |json: &[u8]| serde_json::from_slice::<[String; 2]>(json).unwrap_or_default();
    let mut ranks = all.chunks(IDENTITY).map(read).enumerate();
    let (_, [plan, version]) = ranks.next()?;
    let (rank, [its_plan, its_version]) = ranks.find(|(_, [p, v])| (p, v) != (&plan, &version))?;
    let cause = if its_version == version {
        format!(
            "rank {rank} has a different plan ({its_plan}) from rank 0 ({plan}); start every rank with the same spec and \
             overrides"
        )
    } else {
        format!(
            "rank {rank} runs ddp-run {its_version}, rank 0 runs {version}; run the same version on every node"
        )
    };
    Some((rank, cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identities(ranks: &[(&str, &str)]) -> Vec<u8> {
        ranks.iter().flat_map(|(plan, version)| identity(plan, version).unwrap()).collect()
    }

    #[test]
    fn the_first_rank_with_a_different_plan_or_version_is_named() {
        assert_eq!(conflict(&identities(&[("abc", "1.0"); 3])), None);
        let (rank, cause) = conflict(&identities(&[("abc", "1.0"), ("abc", "1.0"), ("abd", "1.0")])).unwrap();
        assert_eq!(rank, 2);
        assert!(cause.contains("a different plan (abd) from rank 0 (abc)"), "{cause}");
        let (rank, cause) = conflict(&identities(&[("abc", "1.0"), ("abd", "1.1")])).unwrap();
        assert_eq!(rank, 1);
        assert!(cause.contains("ddp-run 1.1"), "{cause}");
    }

    #[test]
    fn a_plan_hash_has_128_bytes_and_no_more() {
        assert_eq!(identity(&"\u{1}".repeat(128), "1.0").unwrap().len(), IDENTITY);
        assert_eq!(identity(&"x".repeat(129), "1.0").unwrap_err().kind, CommErrorKind::Rendezvous);
    }
}
