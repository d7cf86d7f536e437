"""Checks check-kernels itself, without a GPU and without a `ddp-run`: texts and tables of canned
data, the libnvrtc that logs around the real one, the libcuda of the tests, and the whole script
with a stand-in for `ddp-run`."""

import doctest, json, os, pathlib, subprocess, sys, tempfile, tomllib
from . import matrix, report, runner, specs, toolkit

HERE = pathlib.Path(__file__).resolve().parent
# What CubeCL writes for tensor cores and with inline PTX, shortened.
CMMA = """
typedef unsigned int uint32_t;
#include <mma.h>
#include <cuda_bf16.h>
typedef __nv_bfloat16 bf16;
using namespace nvcuda::wmma;
extern "C" __global__ void __launch_bounds__(32, 1)
matmul_cmma_bf16(bf16 const* const __restrict__ buf_0, bf16 const* const __restrict__ buf_1,
                 float* const __restrict__ buf_2) {
  nvcuda::wmma::fragment<matrix_a, 16, 16, 16, bf16, row_major> v_1;
  nvcuda::wmma::fragment<matrix_b, 16, 16, 16, bf16, col_major> v_2;
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> v_3;
  nvcuda::wmma::fill_fragment(v_3, 0.0f);
  nvcuda::wmma::load_matrix_sync(v_1, buf_0, 16);
  nvcuda::wmma::load_matrix_sync(v_2, buf_1, 16);
  nvcuda::wmma::mma_sync(v_3, v_1, v_2, v_3);
  nvcuda::wmma::store_matrix_sync(buf_2, v_3, 16, nvcuda::wmma::mem_row_major);
}
"""
BARRIER = """
#include <cuda/barrier>
extern "C" __global__ void __launch_bounds__(128)
copy_async_f32(float const* const __restrict__ buf_0, float* const __restrict__ buf_1) {
  extern __shared__ __align__(16) char v_1[];
  __shared__ cuda::barrier<cuda::thread_scope_block> v_2;
  if (threadIdx.x == 0) { init(&v_2, 128); }
  __syncthreads();
  float* const v_3 = reinterpret_cast<float*>(v_1) + threadIdx.x;
  cuda::memcpy_async(v_3, buf_0 + threadIdx.x, sizeof(float), v_2);
  v_2.arrive_and_wait();
  buf_1[threadIdx.x] = reinterpret_cast<float*>(v_1)[threadIdx.x];
}
"""
ATOMIC = """
typedef unsigned int uint32_t;
extern "C" __global__ void atomic_add_f32(float* const __restrict__ buf_0) {
  float const v_1 = [&]{
    float result;
    asm volatile("atom.relaxed.add.f32 %0, [%1], %2;"
                 : "=f"(result) : "l"(buf_0), "f"(1.0f) : "memory");
    return result;
  }();
  buf_0[threadIdx.x] = __shfl_xor_sync(__activemask(), v_1, 1);
}
"""
# A mistake that only the assembler of PTX sees, and one of C++.
BAD_PTX = ATOMIC.replace("atom.relaxed.add.f32", "atom.relaxed.frobnicate.f32").replace(
    "atomic_add_f32", "bad_ptx"
)
BAD_CPP = ATOMIC.replace("__activemask()", "no_such_mask()").replace("atomic_add_f32", "bad_cpp")


class Failed(Exception):
    pass


def expect(condition, what):
    if not condition:
        raise Failed(what)


def run(get_toolkit, scratch, script, arguments):
    """The exit code."""
    tests = [("texts and tables", texts), ("verdicts", verdicts)]
    try:
        tools = get_toolkit()
        tests.append(("the libnvrtc that logs", lambda: logs(tools, scratch)))
        tests.append(("the libcuda of the tests", lambda: loads(tools, scratch)))
        tests.append(
            ("with a stand-in for ddp-run", lambda: stand_in(tools, scratch, script, arguments))
        )
    except toolkit.Unavailable as e:
        print(f"skipped: what needs NVRTC: {e}")
    failed = 0
    for name, test in tests:
        try:
            test()
            print(f"ok: {name}", flush=True)
        except (Failed, toolkit.Unavailable) as e:
            failed += 1
            print(f"FAILED: {name}: {e}", flush=True)
    return 1 if failed else 0


def texts():
    for module in (runner, report, specs):
        found = doctest.testmod(module)
        expect(
            found.attempted and not found.failed, f"{found.failed} examples of {module.__name__}"
        )
    written = {
        name: specs.text(name, tempfile.gettempdir(), 3)
        for name, tables in specs.MODELS.items()
        if "TEXT" not in tables
    }
    for name, spec in written.items():
        expect(tomllib.loads(spec)["model"]["name"] == name, f"the spec of {name}")
    expect(
        toolkit.packages("13.5")[0] == "nvidia-cuda-nvrtc==13.5.*"
        and toolkit.packages("12.4")[2] == "nvidia-cuda-nvcc-cu12==12.4.*",
        "names of packages",
    )


def verdicts():
    """A row fails for each thing that can be wrong with it, and for nothing else."""
    compiled = dict(
        kernel="k", source="0a", options=["--gpu-architecture=sm_80"], seconds=0.5, result=0
    )
    broken = {**compiled, "source": "0b", "result": 6, "log": "p(2): error: no such thing\n"}

    def row(code=0, compilations=(compiled,), loads=1, second=(0, (), 1)):
        first = runner.Outcome(
            code, 1.0, list(compilations), loads, 7, "error: it says why\n[Source] int x;"
        )
        again = second and runner.Outcome(second[0], 1.0, list(second[1]), second[2], 7, "")
        return matrix.row("mlp", "f32", "sm_80", first, again)

    expect(row()["why"] == "" and row()["status"] == "ok", "a row that is as it should be fails")
    for found, why in [
        (
            row(compilations=[compiled, broken, broken]),
            "1 of 2 kernels do not compile: p(2): error: no such thing",
        ),
        (row(code=70, second=None), "exit code 70: error: it says why"),
        (row(compilations=(), loads=0), "no kernel was compiled"),
        (row(second=(0, [compiled], 1)), "the second start compiled 1 kernels again"),
        (row(second=(70, (), 1)), "exit code 70 of the second start"),
        (row(second=(0, (), 0)), "the second start loaded no kernel"),
    ]:
        expect(
            found["status"] == "FAIL" and found["why"].startswith(why),
            f"{found['why']!r} instead of {why!r}",
        )


def logs(tools, scratch):
    """The kernels for an old card and the newest; mistakes are logged with NVRTC's words."""
    library = toolkit.build_log(tools, scratch / "self-log")
    folder = scratch / "self-sources"
    folder.mkdir()
    path = scratch / "self.log"
    env = {
        **os.environ,
        "LD_LIBRARY_PATH": f"{library}:{tools.lib}",
        "CUDA_PATH": str(tools.path),
        "NVRTC_LOG": str(path),
        "NVRTC_LOG_SOURCES": str(folder),
    }
    _, archs = tools.describe()
    oldest, newest = max(75, min(archs)), max(archs)
    cases = [
        ("atomic_add_f32", ATOMIC, oldest, 0),
        ("atomic_add_f32", ATOMIC, newest, 0),
        ("matmul_cmma_bf16", CMMA, 80, 0),
        ("matmul_cmma_bf16", CMMA, newest, 0),
        ("copy_async_f32", BARRIER, 80, 0),
        ("copy_async_f32", BARRIER, newest, 0),
        ("bad_ptx", BAD_PTX, 80, 1),
        ("bad_cpp", BAD_CPP, newest, 1),
    ]
    for number, (name, source, sm, code) in enumerate(cases):
        file = scratch / f"self-{number}.cu"
        file.write_text(source)
        done = subprocess.run(
            [sys.executable, HERE / "nvrtc.py", file, str(sm)],
            env=env,
            capture_output=True,
            text=True,
        )
        expect(
            done.returncode == code,
            f"kernel {number} for sm_{sm} ended with {done.returncode}: {ends_of(done)}",
        )
        line = runner.read_log(path.read_text())[-1]
        expect(line["kernel"] == name, f"{line['kernel']!r} instead of {name!r}")
        expect(
            runner.architecture(line["options"]).startswith(f"sm_{sm}"),
            f"options {line['options']}",
        )
        expect((line["result"] != 0) == bool(code), f"result {line['result']} of {name}")
        expect(
            (folder / f"{line['source']}.cu").read_text() == source,
            "the source that is kept is another one",
        )
        if code:
            expect("error" in runner.first_error(line["log"]), f"log {line['log']!r}")
        else:
            # With a CUBIN, NVRTC has assembled the PTX, too.
            expect(line["ptx"] > 500 and line["cubin"] > 500, f"sizes {line}")
    expect(len(runner.read_log(path.read_text())) == len(cases), "lines of the log")


def ends_of(done):
    return done.stdout[-600:] + done.stderr[-600:]


def loads(tools, scratch):
    """The driver's claims that the runs rely on, in one process with the real NVRTC, and the lines
    that are counted."""
    driver, library = toolkit.build_driver(scratch / "self-driver"), toolkit.build_log(
        tools, scratch / "self-driver-log"
    )
    file, path = scratch / "self-load.cu", scratch / "self-cuda.log"
    file.write_text(ATOMIC)
    (major, minor), archs = tools.describe()
    own = major * 1000 + minor * 10
    newest = max(archs)
    # The code is the process's: 222, 218 and 201 are below 256.
    for claimed, version, code in [(newest, own, 0), (75, own, 218), (newest, 12040, 222)]:
        env = {
            **os.environ,
            "LD_LIBRARY_PATH": f"{driver}:{library}:{tools.lib}",
            "CUDA_PATH": str(tools.path),
            "FAKE_CUDA_SM": str(claimed),
            "FAKE_CUDA_DRIVER": str(version),
            "FAKE_CUDA_LOG": str(path),
        }
        done = subprocess.run(
            [sys.executable, HERE / "nvrtc.py", file, str(newest), "atomic_add_f32"],
            env=env,
            capture_output=True,
            text=True,
        )
        expect(
            done.returncode == code,
            f"a kernel for sm_{newest} on sm_{claimed}, driver {version}, ended with "
            f"{done.returncode}: {ends_of(done)}",
        )
    lines = path.read_text().splitlines()
    expect(sum(line.startswith("cuModuleLoadData") for line in lines) == 3, f"lines {lines}")


def stand_in(tools, scratch, script, arguments):
    """The script as a whole; then with each fault of the stand-in it must fail."""
    given = [a for a in arguments if a != "--self-test"]
    binary = HERE / "stand_in.py"

    def call(name, code, *flags, faults=""):
        out = scratch / f"{name}.json"
        done = subprocess.run(
            [
                sys.executable,
                script,
                binary,
                *given,
                *flags,
                "--out",
                out,
                "--failed",
                scratch / f"{name}-failed",
            ],
            env={**os.environ, "STAND_IN_FAULTS": faults},
            capture_output=True,
            text=True,
        )
        expect(
            done.returncode == code,
            f"{name} ended with {done.returncode}: {done.stdout[-3000:]}{done.stderr[-1000:]}",
        )
        return json.loads(out.read_text()), done.stdout

    found, _ = call("quick", 0, "--quick")
    expect(
        found["totals"]["kernels"] == 2 and found["totals"]["second_kernels"] == 0,
        f"totals {found['totals']}",
    )
    found, text = call(
        "several",
        0,
        "--only",
        "matrix",
        "--models",
        "linear,optimizers",
        "--precisions",
        "f32,bf16",
        "--cards",
        "75,90",
    )
    # One of the two kernels is in the cache from the model before.
    expect(
        [r["kernels"] for r in found["rows"] if r["model"] != "linear"] == [1] * 8,
        "kernels that models share",
    )
    expect(found["totals"]["rows"] == 12 and "optimizer-muon  bf16" in text, f"rows of {text}")
    found, text = call("bad", 1, "--quick", faults="bad-kernel")
    expect('identifier "no_such_function" is undefined' in text, text)
    expect(
        len(list((scratch / "bad-failed").glob("*.cu"))) == 1, "the failing source is not copied"
    )
    _, text = call("again", 1, "--quick", faults="no-cache")
    expect("the second start compiled 2 kernels again" in text, text)
    found, text = call("cases", 0, "--only", "cases", "--cards", "80", "--other-binary", binary)
    expect(sum(f["status"] == "ok" for f in found["faults"]) >= 10, text)
    found, _ = call("careless", 1, "--only", "cases", "--cards", "80", faults="careless")
    failed = {f["case"] for f in found["faults"] if f["status"] == "FAIL"}
    expect(
        {
            "no headers",
            "headers without crt",
            "headers without CCCL",
            "driver of CUDA 12.4",
            "driver older than NVRTC",
            "sm_70 under NVRTC 13",
        }
        <= failed,
        f"only these cases failed: {failed}",
    )
