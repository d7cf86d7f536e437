#![allow(unsafe_code)]

use super::*;
use collectives::{
    CommError, DType, DeviceCollectives, DeviceSlice, FlightRecorder, ReduceOp, SoloGroup, Wait,
};

fn read(text: &str, world: usize) -> Result<Option<InjectedFault>> {
    InjectedFault::from_env(&|name| (name == VARIABLE).then(|| text.to_owned()), world)
}

#[test]
fn faults_are_read() {
    let kill = read("kill:rank=1,phase=forward,step=3", 2).unwrap().unwrap();
    let point = FaultPoint::Phase(Phase::Forward);
    assert_eq!(
        kill,
        InjectedFault { action: FaultAction::Kill, rank: 1, point, step: Some(3), generation: None }
    );
    assert!(kill.is_due_in(1) && kill.is_due_in(7));
    let exit = read("exit=7:phase=barrier,rank=0", 1).unwrap().unwrap();
    let point = FaultPoint::Call("barrier");
    assert_eq!(
        exit,
        InjectedFault { action: FaultAction::Exit(7), rank: 0, point, step: None, generation: None }
    );
    let stop = read("stop:rank=3,phase=connect,generation=2", 4).unwrap().unwrap();
    assert!(stop.is_due_in(2) && !stop.is_due_in(1));
    assert_eq!((stop.action, stop.point), (FaultAction::Stop, FaultPoint::Connect));
    let full = read("full:rank=0,phase=save,step=4", 1).unwrap().unwrap();
    assert_eq!((full.action, full.point), (FaultAction::Full, FaultPoint::Phase(Phase::Save)));
    assert_eq!(read("", 1).unwrap(), None);
    assert_eq!(InjectedFault::from_env(&|_| None, 1).unwrap(), None);
}

/// The indices of the calls in which the fault occurred.
fn triggered(text: &str) -> Vec<usize> {
    let fault: InjectedFault = text.parse().unwrap();
    let group = InterceptedGroup::new(Arc::new(SoloGroup::default()), ArmedFault::new(fault, |_, _| {}));
    let note = |phase, step| group.note(StepPhase { step, phase });
    let steps: [&dyn Fn(); 7] = [
        &|| note(Phase::Forward, 0),
        &|| ProcessGroup::all_reduce(&group, (&mut vec![0.0f32]).into(), ReduceOp::Sum).unwrap(),
        &|| note(Phase::Forward, 1),
        &|| note(Phase::Save, 1),
        &|| ProcessGroup::all_reduce(&group, (&mut vec![0.0f32]).into(), ReduceOp::Sum).unwrap(),
        &|| group.barrier(Wait::Deadline).unwrap(),
        &|| note(Phase::Forward, 1),
    ];
    let mut at = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let before = group.intercept.triggered.load(Ordering::Relaxed);
        step();
        if !before && group.intercept.triggered.load(Ordering::Relaxed) {
            at.push(number);
        }
    }
    at
}

#[test]
fn a_fault_triggers_once_at_its_point() {
    assert_eq!(triggered("kill:rank=0,phase=forward"), [0]);
    assert_eq!(triggered("kill:rank=0,phase=forward,step=1"), [2]);
    assert_eq!(triggered("kill:rank=0,phase=all_reduce"), [1]);
    assert_eq!(triggered("kill:rank=0,phase=all_reduce,step=1"), [4]);
    assert_eq!(triggered("kill:rank=0,phase=barrier,step=1"), [5]);
    assert_eq!(triggered("kill:rank=0,phase=evaluate"), [0usize; 0]);
}

#[test]
fn a_bit_is_not_flipped_before_there_are_parameters() {
    let flip: InjectedFault = "flip:rank=0,phase=update,step=3".parse().unwrap();
    assert_eq!((flip.action, flip.point), (FaultAction::Flip, FaultPoint::Phase(Phase::Update)));
    let early = read("flip:rank=0,phase=connect", 1).unwrap_err();
    assert!(early.message.contains("before there are parameters"), "{early}");
}

#[test]
fn only_the_chosen_rank_gets_another_group() {
    let group: Arc<dyn ProcessGroup> = Arc::new(SoloGroup::default());
    let other: InjectedFault = "kill:rank=1,phase=save".parse().unwrap();
    assert!(Arc::ptr_eq(&other.arm(group.clone()), &group));
    let own: InjectedFault = "kill:rank=0,phase=save".parse().unwrap();
    assert!(!Arc::ptr_eq(&own.arm(group.clone()), &group));
}

/// A group of one rank with device collectives, but without a device.
struct OnDevice(SoloGroup);

impl DeviceCollectives for OnDevice {
    fn all_reduce(&self, _: DeviceSlice, _: ReduceOp) -> Result<(), CommError> {
        Ok(())
    }
    fn fence(&self) -> Result<(), CommError> {
        Ok(())
    }
    fn check(&self) -> Result<(), CommError> {
        Ok(())
    }
}

impl ProcessGroup for OnDevice {
    fn rank(&self) -> usize {
        0
    }
    fn world_size(&self) -> usize {
        1
    }
    fn backend(&self) -> &'static str {
        "device"
    }
    fn call(&self, call: Call<'_>) -> Result<(), CommError> {
        self.0.call(call)
    }
    fn abort(&self, why: &str) {
        self.0.abort(why);
    }
    fn device_collectives(&self) -> Option<&dyn DeviceCollectives> {
        Some(self)
    }
}

#[test]
fn a_fault_triggers_in_device_collectives() {
    let fault: InjectedFault = "kill:rank=0,phase=all_reduce".parse().unwrap();
    let none = InterceptedGroup::new(Arc::new(SoloGroup::default()), ArmedFault::new(fault, |_, _| {}));
    assert!(none.device_collectives().is_none(), "it gives no group what that has not");
    let group =
        InterceptedGroup::new(Arc::new(OnDevice(SoloGroup::default())), ArmedFault::new(fault, |_, _| {}));
    let device = group.device_collectives().unwrap();
    device.fence().unwrap();
    device.check().unwrap();
    assert!(!group.intercept.triggered.load(Ordering::Relaxed));
    // SAFETY: the slice has no elements and is never read.
    let slice = unsafe { DeviceSlice::new(0, 0, DType::F32, Box::new(())) };
    device.all_reduce(slice, ReduceOp::Sum).unwrap();
    assert!(group.intercept.triggered.load(Ordering::Relaxed));
}
