"""NVRTC, NCCL and CUDA's headers as Python packages bring them: a machine may have no others."""
import glob, importlib.util, os, pathlib

# What CubeCL's kernels include in the end, and the packages for CUDA 12 and 13 that bring it.
HEADERS = {
    "cuda_fp16.h": "nvidia-cuda-runtime-cu12 or nvidia-cuda-runtime",
    "crt/mma.h": "nvidia-cuda-nvcc-cu12 or nvidia-cuda-crt",
    "nv/target": "nvidia-cuda-cccl-cu12 or nvidia-cuda-cccl",
}


def toolkit():
    """Where CubeCL looks for headers by itself."""
    return os.environ.get("CUDA_PATH") or next((p for p in ("/usr/local/cuda", "/opt/cuda") if os.path.exists(p)), None)


class Packages:
    def __init__(self, folder):
        spec = importlib.util.find_spec("nvidia")
        roots = list(spec.submodule_search_locations) if spec and spec.submodule_search_locations else []
        self.libraries = libraries(roots, folder)
        self.headers, self.lacks = headers(roots, folder / "include"), []
        if self.headers:
            self.lacks = [f"{name} ({by})" for name, by in HEADERS.items() if not has(self.headers, name)]
        # NVRTC and headers of one version belong together; half of the headers are of use only where there are no others.
        asked = "CUDA_PATH" in os.environ
        self.path = folder if self.headers and not asked and (not self.lacks or not toolkit()) else None

    def show(self, env):
        """Lets the processes of `env` find them."""
        if self.libraries:
            env["LD_LIBRARY_PATH"] = ":".join([*self.libraries, env.get("LD_LIBRARY_PATH", "")]).rstrip(":")
        if self.path:
            env["CUDA_PATH"] = str(self.path)

    def told(self):
        if not self.libraries and not self.path:
            return f"none is used; headers are in {toolkit()}"
        text = f"libraries of {', '.join(self.libraries) or 'none'}; headers of {self.headers if self.path else toolkit()}"
        return text + (f"; they lack {', '.join(self.lacks)}" if self.path and self.lacks else "")


def libraries(roots, links):
    """Folders with NVRTC and NCCL. cudarc looks for names without the version that these files have (`libnvrtc.so.12`), so `links`
    gets such."""
    folders = set()
    for name in ("libnvrtc", "libnccl"):
        found = sorted(p for root in roots for p in glob.glob(f"{root}/**/{name}.so*", recursive=True))
        if found:
            (links / f"{name}.so").symlink_to(found[0])
            folders.add(str(pathlib.Path(found[0]).parent))
    return [str(links), *sorted(folders)] if folders else []


def headers(roots, into):
    """One folder of all: each package brings a part (those for CUDA 12 in folders of their own), and CubeCL looks in CUDA_PATH/include
    and its `cccl` alone. None where there are none."""
    parts = sorted(pathlib.Path(p) for root in roots for p in glob.glob(f"{root}/*/include"))
    parts = [part for part in parts if any(has(part, name) for name in HEADERS)]
    for part in parts:
        for file in part.rglob("*"):
            link = into / file.relative_to(part)
            if file.is_file() and not link.exists():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(file)
    return into if parts else None


def has(include, name):
    return any((folder / name).exists() for folder in (include, include / "cccl"))
