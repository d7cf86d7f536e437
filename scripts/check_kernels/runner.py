"""Runs `ddp-run` with the real NVRTC and a driver that only claims a card, and reads what was
compiled."""

import contextlib, dataclasses, itertools, json, os, pathlib, signal, subprocess, threading, time

# Variables of the surrounding shell that would change what a run does.
UNWANTED = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "DDP_RUN_",
    "CUDA_",
    "CUBECL_",
    "FAKE_",
    "NVRTC_LOG",
    "LD_PRELOAD",
)
# One measurement a candidate: the launches do nothing, and each candidate is compiled anyway.
CUBECL = "[autotune.bench]\nmin_samples = 1\nmax_samples = 1\nadaptive = false\n"


@dataclasses.dataclass(frozen=True)
class Card:
    """What the driver claims to be."""

    sm: int
    name: str
    processors: int

    def __str__(self):
        return f"sm_{self.sm}"


# A GTX at 7.5 has no tensor cores.
CARDS = {
    card.sm: card
    for card in [
        Card(75, "NVIDIA GeForce GTX 1650", 14),
        Card(80, "NVIDIA A100-SXM4-80GB", 108),
        Card(90, "NVIDIA H100 80GB HBM3", 132),
        Card(100, "NVIDIA B200", 148),
        Card(120, "NVIDIA GeForce RTX 5090", 170),
    ]
}


def card_of(sm):
    return CARDS.get(sm) or Card(sm, f"NVIDIA card of capability {sm // 10}.{sm % 10}", 64)


@dataclasses.dataclass
class Outcome:
    """A run after its end."""

    code: int
    wall: float
    compilations: list
    loads: int
    launches: int
    text: str

    def kernels(self):
        """The last result of each source and architecture: CubeCL may try one that fails again."""
        return {(c["source"], architecture(c["options"])): c for c in self.compilations}

    def failures(self):
        return [c for c in self.kernels().values() if c["result"] != 0]

    def seconds(self):
        return sum(c["seconds"] for c in self.compilations)


def architecture(options):
    """
    >>> architecture(["-lineinfo", "--gpu-architecture=sm_90a"])
    'sm_90a'
    """
    return next((o.split("=")[1] for o in options if o.startswith("--gpu-architecture=")), "?")


def read_log(text):
    """The lines of the libnvrtc that logs; a last one that was cut off is left out.

    >>> [c["kernel"] for c in read_log('{"kernel": "a"}\\n{"kernel": "b"}\\n{"ker')]
    ['a', 'b']
    """
    return [json.loads(line) for line in text.split("\n")[:-1]]


def first_error(log):
    """The first error in NVRTC's words.

    >>> first_error("p(3): warning #177-D: variable\\np(7): error: identifier is undefined\\n")
    'p(7): error: identifier is undefined'
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next(
        (line for line in lines if "error" in line or "fatal" in line),
        lines[0] if lines else "NVRTC gave no reason",
    )


class Runner:
    def __init__(self, binary, toolkit, driver, log, scratch, sources, limit, autotune, front_end):
        self.autotune, self.front_end = autotune, front_end
        self.binary, self.toolkit, self.driver, self.log = binary, toolkit, driver, log
        self.scratch, self.sources, self.limit = scratch, sources, limit
        # The driver claims this version, too: it loads the PTX of this NVRTC.
        version, self.architectures = toolkit.describe()
        self.version = version
        self.numbers = itertools.count()
        self.lock = threading.Lock()
        self.running = set()
        self.stopped = False
        (scratch / "work").mkdir(exist_ok=True)
        (scratch / "work/cubecl.toml").write_text(CUBECL)

    def folder(self, name):
        with self.lock:
            path = self.scratch / f"{next(self.numbers):04}-{name}"
        path.mkdir()
        return path

    def environment(self, card, cache, folder):
        env = {k: v for k, v in os.environ.items() if not k.startswith(UNWANTED)}
        env.update(
            CUDA_PATH=str(self.toolkit.path),
            LD_LIBRARY_PATH=f"{self.driver}:{self.log}:{self.toolkit.lib}",
            DDP_RUN_KERNEL_CACHE=str(cache),
            XDG_CACHE_HOME=str(self.scratch / "cache"),
            FAKE_CUDA_SM=str(card.sm),
            FAKE_CUDA_NAME=card.name,
            FAKE_CUDA_SMS=str(card.processors),
            FAKE_CUDA_MEMORY=str(8 << 30),
            FAKE_CUDA_DRIVER=str(self.version[0] * 1000 + self.version[1] * 10),
            FAKE_CUDA_LOG=str(folder / "cuda.log"),
            NVRTC_LOG=str(folder / "nvrtc.log"),
            NVRTC_LOG_SOURCES=str(self.sources),
        )
        if self.front_end:
            env.update(NVRTC_LOG_SYNTAX="1")
        if self.autotune != "default":
            # `full` measures, and so compiles, all candidates, without an estimate of the speed.
            env.update(
                CUBECL_AUTOTUNE_LEVEL=self.autotune,
                CUBECL_AUTOTUNE_SHORT_CIRCUIT="0",
                CUBECL_AUTOTUNE_BENCH_ADAPTIVE="0",
            )
        return env

    def missing(self, card):
        """Why the binary can't use CUDA here; None if it can."""
        folder = self.folder("env")
        try:
            done = subprocess.run(
                [self.binary, "env", "--json"],
                env=self.environment(card, "off", folder),
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=120,
            )
        except subprocess.TimeoutExpired:
            return "`env --json` took more than 120 s"
        if done.returncode:
            return f"`env --json` ended with {done.returncode}: {last_error(done.stderr)}"
        device = json.loads(done.stdout)["devices"]["cuda"]
        return None if device["available"] else device["detail"]

    def run(self, spec, card, precision, cache, meanwhile=None, **changes):
        """Trains the spec. `changes` are variables of its environment; None removes one.
        `meanwhile` is called with two functions: the number of kernels that have been compiled,
        and whether the run goes on."""
        folder = self.folder(f"{spec.stem}-{precision}-{card}")
        env = self.environment(card, cache, folder)
        env.update({k: str(v) for k, v in changes.items() if v is not None})
        for name in [k for k, v in changes.items() if v is None]:
            env.pop(name, None)
        out, compiled = folder / "run", folder / "nvrtc.log"
        command = [
            self.binary,
            spec,
            "--out",
            out,
            "--device",
            "cuda",
            "--progress",
            "none",
            "--nproc-per-node",
            "1",
            "--set",
            f"precision={precision}",
        ]
        began = time.monotonic()
        with open(folder / "output", "wb") as output:
            with self.lock:
                if self.stopped:
                    raise KeyboardInterrupt
                process = subprocess.Popen(
                    [str(part) for part in command],
                    env=env,
                    cwd=self.scratch / "work",
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
                self.running.add(process)
            try:
                if meanwhile:
                    meanwhile(
                        lambda: len(read_log(text_of(compiled))), lambda: process.poll() is None
                    )
                code = process.wait(timeout=self.limit)
            except subprocess.TimeoutExpired:
                output.write(f"\nerror: check-kernels ended it after {self.limit:.0f} s\n".encode())
                code = -signal.SIGKILL
            finally:
                kill(process)
                with self.lock:
                    self.running.discard(process)
        logs = sorted(out.glob("logs/*.log"))
        calls = text_of(folder / "cuda.log").splitlines()
        return Outcome(
            code=code,
            wall=time.monotonic() - began,
            compilations=read_log(text_of(compiled)),
            loads=sum(call.startswith("cuModuleLoadData") for call in calls),
            launches=sum(call.startswith("cuLaunchKernel") for call in calls),
            text="\n".join(text_of(path) for path in [*logs, folder / "output"]),
        )

    def stop(self):
        """Ends all runs, and starts no more."""
        with self.lock:
            self.stopped = True
            running = list(self.running)
        for process in running:
            kill(process)


def kill(process):
    """The run with its workers; without effect on one that has ended."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def text_of(path):
    return pathlib.Path(path).read_text(errors="replace") if path.exists() else ""


def last_error(text, size=300):
    """The line of the last error, or the last line, without a kernel's source.

    >>> last_error("a warning\\nerror: no such device\\n\\nhint: look for one\\n")
    'error: no such device'
    """
    text = text.split("[Source]")[0]
    found = text.rfind("error: ")
    lines = (text[found:] if found >= 0 else text.strip()[-size:]).strip().splitlines()
    return "it printed nothing" if not lines else lines[0 if found >= 0 else -1][:size]


def output(text, size=4000):
    """The end of it for the JSON file."""
    return text.strip()[-size:]
