//! The words of refused environments and of requeues, as a snapshot.

use super::nodes::settings;
use super::*;
use crate::clusters::slurm::Requeue;

#[test]
fn messages() {
    let pmi = [("PMI_RANK", "1"), ("PMI_SIZE", "4")];
    let open_mpi = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
    let (none, nodes) = (Settings::default(), settings(Some("3"), None, Some("n1:1")));
    let ranks = Settings { nproc_per_node: Some(Nproc::Count(2)), ..Settings::default() };
    let refusals = [
        ("half of a pair", vec![("RANK", "0")], &none),
        ("no local world size", with(&[("LOCAL_WORLD_SIZE", "")]), &none),
        ("not a number", with(&[("RANK", "-1")]), &none),
        ("out of range", with(&[("RANK", "8")]), &none),
        ("port out of range", with(&[("MASTER_PORT", "70000")]), &none),
        ("port 0", with(&[("MASTER_PORT", "0")]), &none),
        ("chosen port 0", with(&[("DDP_RUN_PORT", "0")]), &none),
        ("local rank", with(&[("LOCAL_RANK", "4")]), &none),
        ("two kinds of MPI", [[("PMI_RANK", "0"), ("PMI_SIZE", "2")], open_mpi].concat(), &none),
        ("PMIX without a size", vec![("PMIX_RANK", "0")], &none),
        ("MPI's rank", vec![("PMI_RANK", "4"), ("PMI_SIZE", "4")], &none),
        ("two launchers", [&[("RANK", "0"), ("WORLD_SIZE", "2")][..], &pmi].concat(), &none),
        ("node rank of a rank", TORCHRUN.to_vec(), &settings(None, Some(1), None)),
        ("other number of nodes", TORCHRUN.to_vec(), &settings(Some("3"), None, None)),
        ("other number of ranks", TORCHRUN.to_vec(), &ranks),
        ("no node rank", vec![], &nodes),
        ("node rank too large", vec![], &settings(Some("3"), Some(3), None)),
        ("srun starts ranks", STEP.to_vec(), &nodes),
        ("Kubernetes without a node rank", vec![("PET_NNODES", "2")], &none),
    ];
    let mut text = String::new();
    for (title, vars, settings) in refusals {
        let error = origin(&vars, settings).expect_err(title);
        assert_eq!(error.kind, ErrorKind::Usage, "{error}");
        text += &format!("== {title}\n{error}\n\n");
    }
    let alone = Origin::Own.is_alone(false, nodes.rdzv_endpoint.as_ref()).expect_err("an endpoint");
    let hosts = [("OMPI_COMM_WORLD_LOCAL_RANK", "0"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "2")];
    let no_address =
        [&[("RANK", "0"), ("WORLD_SIZE", "2"), ("HOME", "/h")][..], &[&open_mpi[..], &hosts].concat()];
    for vars in no_address {
        text += &format!("== no address\n{}\n\n", worker(vars).endpoint(None).expect_err("no address"));
    }
    text +=
        &format!("== number of nodes unknown\n{alone}\n\n== no key\n{}\n\n", super::super::worker::no_key());
    for requeue in
        [Requeue::Requeued, Requeue::Ending("COMPLETING".into()), Requeue::Failed("no access".into())]
    {
        text += &format!("== requeue\n{}\n\n", requeue.notice("12"));
    }
    insta::assert_snapshot!(text);
}
