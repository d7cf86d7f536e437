//! Which CUDA device a rank takes, and what it reads there, with the libcuda and libnccl of the tests of `collectives`.

// The tests of the NCCL engine use all of it; those of CUDA's toolkit, what makes a library.
#[allow(dead_code)]
#[path = "../../../collectives/src/nccl/tests/launch.rs"]
pub mod launch;

use launch::Launch;

/// What the only process of a case reports, with these variables. If the case cannot run, prints that and returns None.
#[cfg(feature = "cuda")]
pub fn said_by(case: &'static str, set: &[(&'static str, &'static str)]) -> Option<String> {
    let launch = set.iter().fold(Launch::new(case, 1), |launch, (name, value)| launch.set(0, name, value));
    let outcome = launch.run()?;
    Some(outcome.said[0].clone().unwrap_or_else(|| panic!("{outcome}")))
}

/// Two ranks as torchrun starts them on a machine with two GPUs, each of which sees the devices in its `visible`.
fn two_local_ranks(visible: [Option<&'static str>; 2]) -> Launch {
    let mut launch = Launch::new("local-rank", 2);
    for (rank, (number, visible)) in ["0", "1"].into_iter().zip(visible).enumerate() {
        let variables = [
            ("FAKE_CUDA_DEVICES", "2"),
            ("FAKE_CUDA_UUID", "1"),
            ("RANK", number),
            ("LOCAL_RANK", number),
            ("WORLD_SIZE", "2"),
            ("LOCAL_WORLD_SIZE", "2"),
        ];
        let visible = visible.map(|devices| ("CUDA_VISIBLE_DEVICES", devices));
        launch =
            variables.into_iter().chain(visible).fold(launch, |l, (name, value)| l.set(rank, name, value));
    }
    launch
}

#[test]
fn a_rank_uses_the_visible_device_of_its_local_rank() {
    let takes = |visible, devices: [(u32, u32); 2]| {
        let Some(outcome) = two_local_ranks(visible).run() else { return };
        for (rank, (number, uuid)) in devices.into_iter().enumerate() {
            let says = format!("cuda:{number}, GPU-00000000-0000-0000-0000-{uuid:012}");
            assert_eq!(outcome.said[rank].as_ref(), Some(&says), "{visible:?}: {outcome}");
        }
    };
    takes([None, None], [(0, 1), (1, 2)]);
    takes([Some("1,0"), Some("1,0")], [(0, 2), (1, 1)]);
    // A launcher may make a different single device visible to each rank.
    takes([Some("1"), Some("0")], [(0, 2), (0, 1)]);
}

mod rank {
    use super::launch::play_rank;
    use crate::device::{ComputeDevice, DeviceSpec, among};
    use collectives::nccl;

    /// One rank of the case that the environment names.
    #[test]
    #[ignore = "a rank, started by the tests beside it"]
    fn rank() {
        play_rank(|case, _, _| match case {
            "local-rank" => {
                let device = by_local_rank();
                let uuid = nccl::gpu_uuid(device).expect("the device has one");
                format!("{}, {uuid}", ComputeDevice::Cuda(device))
            }
            #[cfg(feature = "cuda")]
            "listed" => {
                let precision: String =
                    super::launch::variable("DDP_RUN_NCCL_PRECISION").expect("set with the case");
                let known = crate::device::Precision::parse(&precision);
                crate::device::listed(0, known.expect("a precision"))
            }
            _ => panic!("no such case: {case}"),
        });
    }

    /// The device of a rank that a launcher has started, from its environment variables.
    fn by_local_rank() -> usize {
        nccl::driver().expect("a driver");
        let there = cudarc::driver::result::device::get_count().expect("a driver") as usize;
        match among(
            DeviceSpec::Cuda(None),
            super::launch::variable("LOCAL_RANK").expect("set with the case"),
            || there,
        ) {
            ComputeDevice::Cuda(index) => index,
            other => panic!("not a CUDA device: {other}"),
        }
    }
}
