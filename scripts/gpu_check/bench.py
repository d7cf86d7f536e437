"""Runs `ddp-run` for the sections, each in a folder of its own, and reads what it leaves behind."""
import contextlib, glob, itertools, json, os, pathlib, shutil, signal, subprocess, time
from . import packages
from .memory import Memory
from .report import OutOfTime


UNWANTED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "DDP_RUN_FAULT", "DDP_RUN_KERNEL_CACHE")


class Failed(Exception):
    """A command ended with another code than it should."""


class Run:
    """A run's folder after its end."""

    def __init__(self, out, wall):
        self.out, self.wall = out, wall
        with open(out / "metrics.jsonl") as file:
            self.events = [json.loads(line) for line in file]

    def of(self, kind):
        return [e for e in self.events if e["event"] == kind]

    def losses(self):
        return [e["loss"] for e in self.of("step")]

    def rate(self, windows):
        """Samples per second: the median of the last `windows` lines."""
        rates = sorted(e["samples_per_s"] for e in self.of("step")[-windows:])
        return rates[len(rates) // 2]

    def checkpoint(self):
        return sorted((self.out / "checkpoints").iterdir())[-1]


class Bench:
    def __init__(self, args, scratch, report):
        self.args, self.scratch, self.report = args, scratch, report
        self.device, self.quick, self.data = args.device, args.quick, args.data
        self.is_cuda = args.device.startswith("cuda")
        self.short = args.short
        self.ends = time.monotonic() + 60 * args.minutes * args.limits
        self.until = self.ends
        self.numbers = itertools.count()
        self.cache = scratch / "cache"
        self.packages = packages.Packages(self.folder("packages")) if self.is_cuda else None
        self.memory = Memory(args.device)

    @contextlib.contextmanager
    def section(self, seconds):
        """Nothing that runs within goes on for longer."""
        self.until = self.section_ends = min(self.ends, time.monotonic() + seconds)
        yield

    def rows(self, items):
        """Each of `items` in turn. It may take twice its share of what is left of the section: one that is slow, or hangs, leaves
        time to the others, and what it does not need goes to them."""
        items = list(items)
        for at, item in enumerate(items):
            now = time.monotonic()
            self.until = now + max(0.0, self.section_ends - now) * 2 / (len(items) - at + 1)
            yield item
        self.until = self.section_ends

    def left(self):
        left = self.until - time.monotonic()
        if left < 1:
            raise OutOfTime("not run: no time was left for it")
        return left

    def has(self, seconds):
        return self.until - time.monotonic() > seconds

    def needs_cuda(self):
        """Whether there is no CUDA device under test; says so."""
        if not self.is_cuda:
            self.report.skip("no CUDA device")
        return not self.is_cuda

    def needs(self, *paths):
        missing = [str(path) for path in paths if not path.exists()]
        if missing:
            self.report.skip(f"{', '.join(missing)} is not there")
        return bool(missing)

    def environment(self, cache=None, **more):
        """Kernels and their tuning are kept in XDG_CACHE_HOME/ddp-run/kernels; the driver's own cache is elsewhere."""
        cache = cache or self.cache
        env = {k: v for k, v in os.environ.items() if k not in UNWANTED}
        env.update(XDG_CACHE_HOME=str(cache), CUDA_CACHE_PATH=str(cache / "nv"), DDP_RUN_SECRET="a secret of gpu-check")
        if self.packages:
            self.packages.show(env)
        env.update(more)
        return env

    def folder(self, name):
        path = self.scratch / f"{next(self.numbers):03}-{name}"
        path.mkdir()
        return path

    def spec(self, text):
        path = self.folder("spec") / "job.toml"
        path.write_text(text)
        return path

    def start(self, spec, out, *flags, device=None, env=None):
        """A run under way; its words are in `out`.log."""
        device = device or self.device
        command = [self.args.binary, spec, "--out", out, "--device", device, "--progress", "none", *flags]
        if not any(str(f).startswith("--nproc-per-node") for f in flags) and "RANK" not in (env or {}):
            command += ["--nproc-per-node", "1"]
        log = open(f"{out}.log", "ab")
        run = subprocess.Popen(
            [str(c) for c in command], env=env or self.environment(), cwd=self.scratch, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, start_new_session=True)
        run.log = log.name
        return run

    def wait(self, run, code=0):
        try:
            left = self.left()
            ended = run.wait(timeout=left)
        except OutOfTime:
            self.kill(run)
            raise
        except subprocess.TimeoutExpired:
            self.kill(run)
            raise OutOfTime(f"ended after {left:.0f} s, all that was left for it; it last said: {tail(run.log)}") from None
        if ended != code:
            raise Failed(f"exit code {ended} instead of {code}: {tail(run.log)}")

    def kill(self, run):
        if run.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
            run.wait()

    def train(self, spec, *flags, out=None, device=None, env=None, code=0):
        out = out or self.folder("run") / "run"
        began = time.monotonic()
        self.wait(self.start(spec, out, *flags, device=device, env=env), code)
        return Run(out, time.monotonic() - began)

    def ddp_run(self, *arguments):
        """The standard output of another subcommand."""
        left = self.left()
        try:
            done = subprocess.run(
                [str(a) for a in (self.args.binary, *arguments)], env=self.environment(), cwd=self.scratch,
                capture_output=True, text=True, timeout=left)
        except subprocess.TimeoutExpired:
            raise OutOfTime(f"{arguments[0]}: ended after {left:.0f} s, all that was left for it") from None
        if done.returncode != 0:
            raise Failed(f"{arguments[0]}: exit code {done.returncode}: {done.stderr.strip()[-400:]}")
        return done.stdout

    def cifar(self):
        """The folder that holds CIFAR-10; an archive that came in parts (`split`) is put together."""
        archive, parts = "cifar-10-binary.tar.gz", sorted(glob.glob(f"{self.data}/cifar-10-binary.tar.gz?*"))
        if (self.data / archive).exists() or not parts:
            return self.data
        whole = self.scratch / "cifar"
        whole.mkdir(exist_ok=True)
        with open(whole / archive, "wb") as out:
            for part in parts:
                with open(part, "rb") as piece:
                    shutil.copyfileobj(piece, out)
        return whole


def tail(path, size=800):
    """The last error, or the last words."""
    text = pathlib.Path(path).read_text(errors="replace")
    found = text.rfind("error: ")
    return (text[found:found + size] if found >= 0 else text[-size:]).strip()


def largest_gap(a, b):
    if len(a) != len(b) or not a:
        raise Failed(f"{len(a)} losses against {len(b)}")
    return max(abs(x - y) for x, y in zip(a, b))
