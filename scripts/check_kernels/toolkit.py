"""NVRTC and CUDA's headers from PyPI's wheels, and the libraries that are built around them."""

import json, os, pathlib, shutil, subprocess, sys, tempfile, zipfile

HERE = pathlib.Path(__file__).resolve().parent
FAKE_CUDA = HERE.parent.parent / "tests/fake_cuda/cuda.c"
# What a kernel's includes need in the end.
HEADERS = ("cuda_fp16.h", "crt/mma.h", "nv/target")


class Unavailable(Exception):
    """Something that a check needs can't be had here."""


def packages(version):
    """What pip has to download for a version of CUDA, as in `13.5`. From CUDA 13.3 on, CCCL has
    versions of its own."""
    major = version.split(".")[0]
    if int(major) >= 13:
        return [f"nvidia-cuda-{part}=={version}.*" for part in ("nvrtc", "runtime", "crt")] + [
            f"nvidia-cuda-cccl=={major}.*"
        ]
    # `crt` is in that of nvcc.
    return [
        f"nvidia-cuda-{part}-cu{major}=={version}.*"
        for part in ("nvrtc", "runtime", "nvcc", "cccl")
    ]


def download(version, into):
    """The folder of the wheels, downloaded unless they are there."""
    into.mkdir(parents=True, exist_ok=True)
    complete = into / "complete"
    if not complete.exists():
        wanted = packages(version)
        print(f"downloading {', '.join(wanted)} to {into}", file=sys.stderr, flush=True)
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--only-binary=:all:",
            "--dest",
            into,
            *wanted,
        ]
        try:
            done = subprocess.run(
                [str(c) for c in command], capture_output=True, text=True, timeout=1800
            )
        except subprocess.TimeoutExpired:
            raise Unavailable("pip download took more than 30 minutes") from None
        if done.returncode:
            raise Unavailable(
                f"pip download ended with {done.returncode}: {done.stderr.strip()[-600:]}"
            )
        complete.touch()
    return sorted(into.glob("*.whl"))


def unpack(wheels, into):
    """The wheels over each other in one folder, with `include` and `lib` of all. Each wheel has its
    files in a folder of its own, as `nvidia/cuda_runtime`, or, since CUDA 13, in `nvidia/cu13`."""
    complete = into / "complete"
    names = "\n".join(wheel.name for wheel in wheels) + "\n"
    if complete.exists() and complete.read_text() == names:
        return Toolkit(into)
    if into.exists():
        shutil.rmtree(into)
    into.parent.mkdir(parents=True, exist_ok=True)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix=f"{into.name}-", dir=into.parent))
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                parts = pathlib.PurePosixPath(member.filename).parts
                wanted = (
                    len(parts) > 3
                    and parts[0] == "nvidia"
                    and parts[2] in ("include", "lib")
                    and ".." not in parts
                )
                # Static and alternative libraries are large, and nothing loads them.
                if (
                    not wanted
                    or member.is_dir()
                    or parts[-1].endswith(".a")
                    or ".alt." in parts[-1]
                ):
                    continue
                path = scratch.joinpath(*parts[2:])
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as packed, open(path, "wb") as file:
                    shutil.copyfileobj(packed, file)
    (scratch / "complete").write_text(names)
    scratch.rename(into)
    return Toolkit(into)


class Toolkit:
    """A folder like a toolkit's: what CUDA_PATH names."""

    def __init__(self, path):
        self.path, self.include, self.lib = path, path / "include", path / "lib"
        found = sorted(p for p in self.lib.glob("libnvrtc.so.*"))
        if not found:
            raise Unavailable(f"no libnvrtc.so in {self.lib}")
        self.nvrtc = found[0]

    def lacks(self):
        return [
            name
            for name in HEADERS
            if not any((at / name).exists() for at in (self.include, self.include / "cccl"))
        ]

    def describe(self):
        """NVRTC's version, as in (13, 5), and the architectures that it compiles for. A process of
        its own asks, so that no library stays loaded in this one."""
        code = (
            "import ctypes, json, sys\n"
            "nvrtc = ctypes.CDLL(sys.argv[1])\n"
            "major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()\n"
            "nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))\n"
            "nvrtc.nvrtcGetNumSupportedArchs(ctypes.byref(count))\n"
            "archs = (ctypes.c_int * count.value)()\n"
            "nvrtc.nvrtcGetSupportedArchs(archs)\n"
            "print(json.dumps([major.value, minor.value, list(archs)]))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(self.nvrtc)],
            capture_output=True,
            text=True,
            env={**os.environ, "LD_LIBRARY_PATH": str(self.lib)},
        )
        if done.returncode:
            raise Unavailable(
                f"{self.nvrtc} can't be asked for its version: {done.stderr.strip()[-400:]}"
            )
        major, minor, archs = json.loads(done.stdout)
        return (major, minor), archs

    def without(self, header, into):
        """A folder for CUDA_PATH that has all headers but those under `header`, such as `crt`."""
        include = into / "include"
        include.mkdir(parents=True)
        for path in self.include.iterdir():
            if path.name == "cccl" and header != "cccl" and (path / header).exists():
                (include / "cccl").mkdir()
                for below in path.iterdir():
                    if below.name != header:
                        (include / "cccl" / below.name).symlink_to(below)
            elif path.name != header:
                (include / path.name).symlink_to(path)
        return into


def compile_c(source, output, *flags):
    output.parent.mkdir(parents=True, exist_ok=True)
    compiler = os.environ.get("CC", "cc")
    command = [
        compiler,
        "-std=gnu11",
        "-O1",
        "-fPIC",
        "-shared",
        "-o",
        str(output),
        str(source),
        *flags,
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise Unavailable(
            f"no C compiler: `{compiler}` was not found; install one, or set CC"
        ) from None
    if done.returncode:
        raise Unavailable(
            f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()[-2000:]}"
        )
    return output


def build_driver(into, *flags):
    """The tests' libcuda, in a folder for LD_LIBRARY_PATH."""
    return compile_c(FAKE_CUDA, into / "libcuda.so.1", "-pthread", "-lm", *flags).parent


def build_log(toolkit, into):
    """A libnvrtc that logs what the toolkit's compiles. ddp-run looks for `libnvrtc.so` before the
    name that the real one has."""
    flags = (
        f'-DREAL="{toolkit.nvrtc}"',
        "-Wl,--no-as-needed",
        str(toolkit.nvrtc),
        "-ldl",
        "-pthread",
    )
    return compile_c(HERE / "nvrtc_log.c", into / "libnvrtc.so", *flags).parent
