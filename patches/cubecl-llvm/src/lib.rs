//! The names of cubecl-llvm 0.11.3 that cubecl-cuda 0.11.3 uses, without LLVM: what would compile a kernel returns an
//! error. ddp-run selects the CUDA C++ backend (feature `cuda-cpp` of `cubecl`), whose kernels NVRTC compiles.

use std::ffi::c_char;
use std::fmt::{self, Display, Formatter};

use cubecl_core::ir::nvidia::SmArch;
use cubecl_core::prelude::KernelDefinition;
use cubecl_core::{CompilationError, Compiler};
use cubecl_environment::backtrace::BackTrace;
use cubecl_runtime::kernel::BufferIOAttr;

/// The version of PTX that LLVM would write.
pub mod nvptx {
    pub mod ptx_version {
        use std::fmt::{self, Display, Formatter};

        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum PtxVersion {}

        impl PtxVersion {
            /// None: no PTX is written.
            pub fn for_driver(_driver: i32) -> Option<Self> {
                None
            }
        }

        impl Display for PtxVersion {
            fn fmt(&self, _: &mut Formatter<'_>) -> fmt::Result {
                match *self {}
            }
        }
    }
}

pub mod shared {
    pub mod lowered_features {
        use cubecl_core::ir::DeviceProperties;

        pub enum GpuTarget {
            Nvptx,
        }

        /// Called only for the LLVM backend.
        pub fn restrict_features(_: &mut DeviceProperties, _: GpuTarget) {}
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LlvmTarget {
    #[default]
    Nvptx,
}

#[derive(Clone, Debug, Default)]
pub struct PlironOptions {
    pub arch: Option<cubecl_core::ir::amd::GfxArch>,
    pub sm_arch: Option<SmArch>,
    pub ptx_version: Option<nvptx::ptx_version::PtxVersion>,
    pub grid_constants: bool,
}

#[derive(Clone, Debug)]
pub struct NvptxModule {
    pub ptx: Vec<c_char>,
    pub entrypoint: String,
    pub ir: String,
    pub shared_memory_size: usize,
    pub io: Vec<BufferIOAttr>,
}

#[non_exhaustive]
pub enum PlironArtifact {
    NvptxCode(NvptxModule),
}

impl Display for PlironArtifact {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self::NvptxCode(module) = self;
        f.write_str(&module.ir)
    }
}

#[derive(Clone, Debug, Default)]
pub struct PlironCompiler {
    pub target: LlvmTarget,
}

impl Compiler for PlironCompiler {
    type Representation = PlironArtifact;
    type CompilationOptions = PlironOptions;

    fn compile(&mut self, _: KernelDefinition, _: &PlironOptions) -> Result<PlironArtifact, CompilationError> {
        let reason = "this build has no LLVM; kernels are compiled from CUDA C++ (`cuda-cpp`)".to_owned();
        Err(CompilationError::Generic { reason, backtrace: BackTrace::capture() })
    }

    fn extension(&self) -> &'static str {
        "ll"
    }

    fn lang_tag(&self) -> &'static str {
        "llvm"
    }
}
