"""Compiles a file with the libnvrtc of LD_LIBRARY_PATH, by the calls and options that CubeCL uses,
and with KERNEL loads it by libcuda: nvrtc.py FILE SM [KERNEL]. For the self-test."""

import ctypes, os, pathlib, sys


def compile_source(source, sm):
    """The PTX, or None and the log."""
    nvrtc = ctypes.CDLL("libnvrtc.so")
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), None, 0, None, None))
    include = pathlib.Path(os.environ["CUDA_PATH"]) / "include"
    options = [
        f"--gpu-architecture=sm_{sm}{'a' if sm >= 90 else ''}",
        f"--include-path={include}",
        "-lineinfo",
    ]
    if (include / "cccl").exists():
        options.append(f"--include-path={include}/cccl")
    texts = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    if nvrtc.nvrtcCompileProgram(program, len(options), texts):
        check(nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
        log = ctypes.create_string_buffer(size.value)
        check(nvrtc.nvrtcGetProgramLog(program, log))
        return None, log.value.decode(errors="replace")
    check(nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size)))
    ptx = ctypes.create_string_buffer(size.value)
    check(nvrtc.nvrtcGetPTX(program, ptx))
    return ptx.value.decode(), ""


def load(ptx, kernel):
    """What `cuModuleLoadData` returns. The kernel must be in the module if it is 0."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    check(cuda.cuInit(0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(cuda.cuCtxSetCurrent(context))
    result = cuda.cuModuleLoadData(ctypes.byref(module), ptx.encode())
    if result == 0:
        check(cuda.cuModuleGetFunction(ctypes.byref(function), module, kernel.encode()))
    return result


def check(result):
    if result:
        raise RuntimeError(f"a call returned {result}")


if __name__ == "__main__":
    ptx, log = compile_source(pathlib.Path(sys.argv[1]).read_text(), int(sys.argv[2]))
    print(ptx if ptx is not None else log)
    if ptx is None:
        sys.exit(1)
    sys.exit(load(ptx, sys.argv[3]) if len(sys.argv) > 3 else 0)
