//! A stand-in for CubeCL: its own stream in the device's primary context, and memory.

#![allow(unsafe_code)]

use super::super::driver::CudaContext;
use crate::{DType, DeviceSlice, Element};
use cudarc::driver::{result, sys};
use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) struct Gpu {
    context: CudaContext,
    stream: sys::CUstream,
}

/// Device memory of `len` elements; freed when the process ends.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    address: sys::CUdeviceptr,
    len: usize,
    dtype: DType,
}

impl Gpu {
    pub(super) fn new(device: usize) -> Self {
        let context = CudaContext::open(device).expect("the device opens");
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking).expect("a stream");
        Self { context, stream }
    }

    pub(super) fn memory<T: Element>(&self, len: usize) -> Memory {
        self.context.enter().expect("the context can be entered");
        // SAFETY: the memory is written before it is read, and never freed.
        let address = unsafe { result::malloc_sync(len * size_of::<T>()) }.expect("memory");
        Memory { address, len, dtype: T::DTYPE }
    }

    /// Launches a copy to the device.
    pub(super) fn write<T: Element>(&self, memory: Memory, values: &[T]) {
        assert_eq!((memory.len, memory.dtype), (values.len(), T::DTYPE));
        self.context.enter().expect("the context can be entered");
        // SAFETY: lengths agree, and pageable memory has been read when the call returns.
        unsafe { result::memcpy_htod_async(memory.address, values, self.stream) }.expect("a copy");
    }

    /// Launches a copy from the device and waits for it.
    pub(super) fn read<T: Element>(&self, memory: Memory) -> Vec<T> {
        let mut values = vec![T::zeroed(); memory.len];
        self.context.enter().expect("the context can be entered");
        // SAFETY: lengths agree, and `values` does not move until the stream is done.
        unsafe {
            result::memcpy_dtoh_async(&mut values, memory.address, self.stream).expect("a copy");
            result::stream::synchronize(self.stream).expect("the stream ends");
        }
        values
    }

    /// Makes the stream wait until the flag is set.
    pub(super) fn hold(&self) -> Arc<AtomicBool> {
        extern "C" fn wait(flag: *mut c_void) {
            // SAFETY: created by `into_raw` below, and this runs once.
            let flag = unsafe { Arc::from_raw(flag.cast_const().cast::<AtomicBool>()) };
            while !flag.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        }
        let flag = Arc::new(AtomicBool::new(false));
        let argument = Arc::into_raw(flag.clone()).cast_mut().cast();
        // SAFETY: the argument has the type that the function expects.
        unsafe { result::stream::launch_host_function(self.stream, wait, argument) }
            .expect("a host function");
        flag
    }

    pub(super) fn lend(&self, memory: Memory, keep: Box<dyn Any + Send>) -> DeviceSlice {
        // SAFETY: the memory is never freed; the cases keep the order of launches.
        unsafe { DeviceSlice::new(memory.address, memory.len, memory.dtype, keep) }
    }
}
