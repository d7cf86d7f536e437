//! The messages of a rank that can't start or continue, and about what is saved, as a snapshot.

use super::{fault::InjectedFault, fit, same_data, same_devices, start_state};
use base::error::{Error, ErrorKind};
use collectives::GpuUuid;
use data::Fingerprint;
use ddp::device::ComputeDevice;
use launch::Nproc;
use train::training::{Batching, Position};

fn has(train: u64, content: &str) -> Fingerprint {
    Fingerprint { train, val: None, content: content.to_owned() }
}

fn saved() -> String {
    let cases = [
        (None, Some(317), "auto"),
        (None, Some(4), "never"),
        (Some(9), Some(9), "auto"),
        (Some(9), Some(9), "runs/other"),
        (None, None, "auto"),
        (None, None, "never"),
    ];
    cases.map(|(found, newest, resume)| start_state::saved_message(found, newest, resume)).join("\n")
}

fn faults() -> String {
    let wrong = [
        "kill",
        "jump:rank=0,phase=connect",
        "exit=256:rank=0,phase=save",
        "kill:rank",
        "kill:rank=x,phase=connect",
        "kill:rank=0,rank=1,phase=connect",
        "kill:phase=connect",
        "kill:rank=0",
        "kill:rank=0,phase=lunch",
        "kill:rank=0,place=here",
        "kill:rank=0,phase=connect,step=1",
        "kill:rank=2,phase=connect",
    ];
    let errors = wrong.map(|text| {
        let error = InjectedFault::from_env(&|_| Some(text.to_owned()), 2).expect_err(text);
        assert_eq!(error.kind, ErrorKind::Usage, "{text}");
        error.to_string()
    });
    errors.join("\n")
}

fn data_sets() -> String {
    let all = [has(399, "a"), has(899, "b"), has(399, "a"), has(399, "c")];
    let mut position = Position::new(Batching::new(2, 4, 1));
    (position.micro, position.step_in_epoch) = (10, 10);
    let error = |done: Result<Option<String>, Error>| done.expect_err("too few").to_string();
    [
        same_data::compare(&all).expect_err("they differ").to_string(),
        error(same_data::since(&has(399, "a"), &has(40, "b"), &position, false)),
        same_data::since(&has(399, "a"), &has(899, "b"), &position, false).expect("fits").expect("new"),
    ]
    .join("\n\n")
}

fn devices_and_batches() -> String {
    let devices = [ComputeDevice::Cpu, ComputeDevice::Wgpu(0)].map(same_devices::entry);
    let gpu = ("cuda".to_owned(), Some(GpuUuid([7; 16])));
    [
        same_devices::compare(&devices, false).expect_err("two kinds").to_string(),
        same_devices::compare(&[gpu.clone(), gpu], false).expect_err("one GPU").to_string(),
        Nproc::Gpu.resolve(8, || 0).expect_err("no device").to_string(),
        fit::batches(true, &Position::new(Batching::new(2, 8, 1)), 10).expect_err("none").to_string(),
    ]
    .join("\n\n")
}

#[test]
fn messages() {
    let parts = [
        ("what is saved", saved()),
        ("DDP_RUN_FAULT", faults()),
        ("data sets", data_sets()),
        ("devices and batches", devices_and_batches()),
    ];
    insta::assert_snapshot!(parts.map(|(title, text)| format!("== {title}\n{text}\n")).join("\n"));
}
