#!/usr/bin/env python3
"""A stand-in for `ddp-run` with CUDA, for the self-test of check-kernels: it compiles two kernels
with NVRTC, keeps them in a cache, and does what check-kernels expects where something is missing.
STAND_IN_FAULTS has words: `bad-kernel` (one does not compile), `no-cache` (it keeps nothing),
`careless` (it looks at nothing before it compiles)."""

import ctypes, hashlib, json, os, pathlib, sqlite3, sys

sys.dont_write_bytecode = True
import nvrtc

FAULTS = os.environ.get("STAND_IN_FAULTS", "").split()
KERNEL = """
typedef unsigned int uint32_t;
#include <cuda_fp16.h>
#include <mma.h>
struct info_st { uint32_t scalars_u32[2]; uint32_t static_meta[6]; };
extern "C" __global__ void __launch_bounds__(256)
kernel_NAME(float const* const __restrict__ buf_0, float* const __restrict__ buf_1,
            const __grid_constant__ info_st info) {
  uint32_t const v_1 = threadIdx.x + blockIdx.x * 256;
  if (v_1 < info.static_meta[0]) { buf_1[v_1] = float(__half(buf_0[v_1])) + EXPRESSION; }
}
"""


def unavailable(text):
    print(f"error: device `cuda:0`: {text}", file=sys.stderr)
    sys.exit(69)


def look(sm):
    """What `ddp-run` looks at when it starts; NVRTC's and the driver's version."""
    library = next(
        (name for name in ("libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12") if loads(name)), None
    )
    if not library:
        unavailable("the CUDA runtime compiler was not found (no libnvrtc.so)")
    compiler = ctypes.CDLL(library)
    major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    compiler.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    own = major.value * 1000 + minor.value * 10
    driver = int(os.environ["FAKE_CUDA_DRIVER"])
    if "careless" in FAULTS:
        return own, driver
    include = pathlib.Path(os.environ["CUDA_PATH"]) / "include"
    for name in ("cuda_fp16.h", "crt/mma.h", "nv/target"):
        if not any((folder / name).exists() for folder in (include, include / "cccl")):
            unavailable(f"the CUDA headers lack {name}")
    if driver < 12080:
        unavailable("the driver is older than CUDA 12.8")
    if driver < own:
        unavailable(
            f"NVRTC {major.value}.{minor.value} is newer than the driver: it supports CUDA "
            f"{driver // 1000}.{driver // 10 % 100}"
        )
    compiler.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    archs = (ctypes.c_int * count.value)()
    compiler.nvrtcGetSupportedArchs(archs)
    if sm not in archs:
        unavailable(f"NVRTC {major.value}.{minor.value} does not compile for sm_{sm}")
    return own, driver


def loads(name):
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


class Cache:
    """A database with the schema version of CubeCL's."""

    def __init__(self, name):
        folder = pathlib.Path(os.environ["DDP_RUN_KERNEL_CACHE"])
        free = os.statvfs(folder)
        self.database = None
        if free.f_bavail * free.f_frsize < 64 << 20:
            print("compiled kernels are not cached: less than 64 MiB are free")
        elif "no-cache" not in FAULTS:
            self.attempt(lambda: self.open(folder / f"{name}.db"))

    def open(self, path):
        self.database = sqlite3.connect(path)
        self.database.execute(
            "CREATE TABLE IF NOT EXISTS meta (k TEXT PRIMARY KEY, v TEXT NOT NULL)"
        )
        found = self.database.execute("SELECT v FROM meta WHERE k = 'schema_version'").fetchone()
        if found != ("3",):
            self.database.execute("DROP TABLE IF EXISTS entries")
        self.database.execute(
            "CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, value TEXT NOT NULL)"
        )
        self.database.execute("INSERT OR REPLACE INTO meta VALUES ('schema_version', '3')")
        self.database.commit()

    def attempt(self, action):
        try:
            return action()
        except sqlite3.Error as e:
            print(f"warning: kernels are not cached: {e}")
            self.database = None

    def get(self, key):
        found = self.database and self.attempt(
            lambda: self.database.execute(
                "SELECT value FROM entries WHERE key = ?", [key]
            ).fetchone()
        )
        return found and found[0]

    def put(self, key, value):
        def store():
            self.database.execute("INSERT OR REPLACE INTO entries VALUES (?, ?)", [key, value])
            self.database.commit()

        if self.database:
            self.attempt(store)


def train(arguments):
    spec, out = pathlib.Path(arguments[0]), pathlib.Path(arguments[arguments.index("--out") + 1])
    precision = arguments[arguments.index("--set") + 1].split("=")[1]
    out.joinpath("logs").mkdir(parents=True)
    sm = int(os.environ["FAKE_CUDA_SM"])
    own, driver = look(sm)
    cache = Cache(f"card-sm{sm}-nvrtc{own}-driver{driver}-{precision}-0")
    expressions = {
        spec.stem.replace("-", "_"): "1.0f",
        "common": "no_such_function(1.0f)" if "bad-kernel" in FAULTS else "2.0f",
    }
    for name, expression in expressions.items():
        source = KERNEL.replace("NAME", name).replace("EXPRESSION", expression)
        key = hashlib.sha256(source.encode()).hexdigest()
        ptx = cache.get(key)
        if not ptx:
            ptx, log = nvrtc.compile_source(source, sm)
            if ptx is None:
                print(f"error: [Compilation Error] {log}\n[Source]\n{source}", file=sys.stderr)
                return 70
            cache.put(key, ptx)
        with open(os.environ["FAKE_CUDA_LOG"], "a") as log:
            log.write("cuModuleLoadData\n")
    return 0


def main():
    arguments = sys.argv[1:]
    if arguments[:2] == ["list", "optimizers"]:
        print("optimizers\n  sgd    `torch.optim.SGD`.\n  muon   `torch.optim.Muon`.")
        return 0
    if arguments[0] == "env":
        print(json.dumps({"devices": {"cuda": {"available": True, "detail": "a stand-in"}}}))
        return 0
    return train(arguments)


if __name__ == "__main__":
    sys.exit(main())
