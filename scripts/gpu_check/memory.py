"""The memory of the device under test that is in use, sampled while something runs: the same for ddp-run and for PyTorch, their contexts
included."""
import ctypes, shutil, subprocess, threading, time


class Memory:
    def __init__(self, device):
        kind, _, index = device.partition(":")
        # By its UUID, for CUDA counts the devices that CUDA_VISIBLE_DEVICES shows, and nvidia-smi those of the machine.
        uuid = gpu_uuid(int(index or 0)) if kind == "cuda" and shutil.which("nvidia-smi") else None
        self.query = uuid and ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", uuid]

    def used(self):
        """MiB, of all processes; `None` where nobody can say it."""
        if not self.query:
            return None
        try:
            text = subprocess.run(self.query, capture_output=True, text=True, timeout=10).stdout.strip()
        except subprocess.TimeoutExpired:
            return None
        return int(text) if text.isdigit() else None


def gpu_uuid(index):
    """Of the CUDA device of that number, as nvidia-smi writes it; needs no context."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    calls = [lambda: cuda.cuInit(0), lambda: cuda.cuDeviceGet(ctypes.byref(device), index),
             lambda: cuda.cuDeviceGetUuid_v2(uuid, device)]
    if any(call() != 0 for call in calls):
        return None
    text = bytes(uuid).hex()
    return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class Peak:
    """The most that was in use on top of `before`, which is what is in use now where it is not given."""

    def __init__(self, memory, before=None):
        self.memory, self.before, self.seen, self.over = memory, before, [], threading.Event()

    def __enter__(self):
        if self.before is None:
            self.before = self.memory.used()
        self.thread = threading.Thread(target=self._sample, daemon=True)
        if self.before is not None:
            self.thread.start()
        return self

    def _sample(self):
        while not self.over.wait(0.1):
            began, used = time.monotonic(), self.memory.used()
            if used is not None:
                self.seen.append((began, used))

    def __exit__(self, *_):
        self.over.set()
        if self.before is not None:
            self.thread.join()

    def told(self, window=(0.0, float("inf"))):
        """MiB within `window`, by the clock of `time.monotonic`, which all processes share; `None` where there is no sample."""
        within = [used for at, used in self.seen if window[0] <= at <= window[1]]
        return max(within) - self.before if within else None
