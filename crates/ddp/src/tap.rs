//! Gradient taps: an identity in the forward pass whose backward step passes on the parameter's finished gradient.
//!
//! Burn runs backward steps by depth in the graph, deepest first, and a step attached to a leaf has depth 1, so all
//! taps would run at the very end. Each tap therefore has a second, untracked parent: a rung of a ladder whose depth
//! grows in the order in which the forward pass first uses the parameters. A tap then runs right after the layers that
//! follow its parameter's, and communication overlaps with the rest of the backward pass. A rung that is too short
//! costs overlap, never correctness: the consumers of a tap are always deeper than the tap.

use crate::device::{Differentiable, Gradient, Tracked};
use burn::backend::{Autodiff, BackendTypes};
use burn::tensor::{Device, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

type AdTensor<B> = <Autodiff<B> as BackendTypes>::FloatTensorPrimitive;

/// Receives each parameter's gradient once per backward pass, on the thread that runs it.
pub trait GradientSink: Send + Sync + Debug {
    /// Receives the gradient of the parameter with number `parameter`, summed over all its uses in the forward pass.
    fn ready(&self, parameter: usize, gradient: Gradient);
}

/// Graph depth reserved per parameter; a layer that uses more delays its tap.
const RUNGS_PER_PARAMETER: usize = 12;

/// Untracked scalars of increasing graph depth. Created once for a model and used in each step.
pub struct TapLadder {
    rungs: Arc<[Tracked]>,
}

impl TapLadder {
    /// A ladder for `parameters` parameters on `device` (autodiff on).
    pub fn new(parameters: usize, device: &Device) -> Self {
        let mut rung = Tensor::<1>::zeros([1], device);
        let mut rungs = Vec::with_capacity(parameters);
        for _ in 0..parameters {
            for _ in 0..RUNGS_PER_PARAMETER {
                rung = rung + 0.0;
            }
            rungs.push(Tracked::from_tensor(rung.clone()));
        }
        Self { rungs: rungs.into() }
    }

    /// The taps of one forward pass. Call for each parameter at its first use: returns the tensor itself, with a
    /// backward step that gives its gradient to `sink` and nothing to the leaf.
    pub fn taps(
        &self,
        sink: Arc<dyn GradientSink>,
    ) -> impl Fn(usize, Tracked) -> Tracked + Send + Sync + 'static {
        let (rungs, used) = (self.rungs.clone(), AtomicUsize::new(0));
        move |parameter, tensor| {
            let place = used.fetch_add(1, Ordering::Relaxed);
            let state = TapState { parameter, sink: sink.clone() };
            match (tensor, &rungs[place.min(rungs.len() - 1)]) {
                (Tracked::Host(tensor), Tracked::Host(rung)) => Tracked::Host(tapped(state, tensor, rung)),
                #[cfg(feature = "cubecl-devices")]
                (Tracked::Device(tensor), Tracked::Device(rung)) => {
                    Tracked::Device(tapped(state, tensor, rung))
                }
                #[cfg(feature = "cubecl-devices")]
                _ => unreachable!("the ladder is on the model's device"),
            }
        }
    }
}

fn tapped<B: Differentiable>(state: TapState, tensor: AdTensor<B>, rung: &AdTensor<B>) -> AdTensor<B> {
    let (primitive, leaf) = tensor.into_parts();
    let step = Backward::<B, 2>::prepare::<NoCheckpointing>(TapStep, [leaf, rung.node()]);
    match step.compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(state, primitive),
        OpsKind::UnTracked(prep) => prep.finish(primitive),
    }
}

#[derive(Clone, Debug)]
struct TapState {
    parameter: usize,
    sink: Arc<dyn GradientSink>,
}

#[derive(Debug)]
struct TapStep;

impl<B: Differentiable> Backward<B, 2> for TapStep {
    type State = TapState;

    fn backward(self, ops: Ops<TapState, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<B>(&ops.node);
        ops.state.sink.ready(ops.state.parameter, B::gradient(gradient));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Debug, Default)]
    struct Recorder(Mutex<Vec<(usize, Vec<f32>)>>);

    impl GradientSink for Recorder {
        fn ready(&self, parameter: usize, gradient: Gradient) {
            let values = match gradient {
                Gradient::Host(gradient) => gradient.to_contiguous().storage::<f32>().to_vec(),
                Gradient::Device(gradient) => gradient.into_data().try_into_vec::<f32>().unwrap(),
            };
            self.0.lock().expect("no test thread panics here").push((parameter, values));
        }
    }

    /// y = ((x w1) w2) w0 with scalars: gradients arrive in reverse order of use, whatever the parameters' numbers,
    /// each exactly once, and before the backward pass reaches the first layer.
    #[test]
    fn gradients_arrive_in_reverse_order_of_use() {
        let device = Device::flex().autodiff();
        let ladder = TapLadder::new(3, &device);
        let recorder = Arc::new(Recorder::default());
        let tap = ladder.taps(recorder.clone());
        let leaf = |v: f32| Tensor::<1>::from_floats([v], &device).require_grad();
        let mut y = Tensor::<1>::from_floats([2.0], &device);
        for (i, w) in [(1, 3.0), (2, 5.0), (0, 7.0)] {
            y = y * tap(i, Tracked::from_tensor(leaf(w))).into_tensor::<1>();
        }
        y.sum().backward();
        let seen = recorder.0.lock().unwrap().clone();
        assert_eq!(seen, vec![(0, vec![30.0]), (2, vec![42.0]), (1, vec![70.0])]);
    }

    /// A parameter used twice gets one gradient, the sum of both uses.
    #[test]
    fn a_shared_parameter_is_reported_once_with_the_sum() {
        let device = Device::flex().autodiff();
        let ladder = TapLadder::new(1, &device);
        let recorder = Arc::new(Recorder::default());
        let tap = ladder.taps(recorder.clone());
        let w = Tensor::<1>::from_floats([3.0], &device).require_grad();
        let tapped = tap(0, Tracked::from_tensor(w)).into_tensor::<1>();
        (tapped.clone() * tapped).sum().backward();
        assert_eq!(*recorder.0.lock().unwrap(), vec![(0, vec![6.0])]);
    }
}
