"""How fast a device trains, beside PyTorch on the same device and in the same call."""
import json, pathlib, re, select, statistics, subprocess, time
from . import jobs
from .bench import tail
from .memory import Peak

PRECISIONS = ["bf16", "tf32", "f32"]
SIZE = (6, 6, 384, 256, 64)
TINY = (1, 2, 16, 16, 4)


class Case:
    """One job on both sides. `units` make a step."""

    def __init__(self, bench, what, job, theirs, units, unit):
        self.what, self.job, self.units, self.unit = what, job, units, unit
        self.pytorch = PyTorch(bench, theirs)


def resnet(bench):
    job = lambda batch: lambda steps, every: jobs.resnet_speed(bench, batch, steps, every)
    theirs = lambda batch: ["resnet", "--batch", batch]
    batches = [8] if bench.quick else [128, 512]
    side_by_side(bench, [Case(bench, f"ResNet-18, batch {b}", job(b), theirs(b), b, "samples/s") for b in batches])


def gpt(bench):
    if bench.needs(bench.data / "tinyshakespeare.txt"):
        return
    size = layers, heads, width, block, batch = TINY if bench.quick else SIZE
    theirs = ["gpt", "--batch", batch, "--size", f"{layers},{heads},{width},{block}"]
    job = lambda steps, every: jobs.gpt_speed(bench, size, steps, every)
    what = f"{name_of(size)}, block {block}, batch {batch}"
    side_by_side(bench, [Case(bench, what, job, theirs, batch * block, "tokens/s")])


def name_of(size):
    return "GPT {}/{}/{}".format(*size)


def both(bench, steps, every):
    """A job of each model, with its name."""
    size, batch = (TINY, 8) if bench.quick else (SIZE, 128)
    cases = [(f"ResNet-18, batch {batch}", jobs.resnet_speed(bench, batch, steps, every))]
    if (bench.data / "tinyshakespeare.txt").exists():
        cases.append((name_of(size), jobs.gpt_speed(bench, size, steps, every)))
    return cases


def side_by_side(bench, cases):
    """Each precision on both sides in turn; what PyTorch compiles comes last, as far as there is time."""
    precisions = PRECISIONS if bench.is_cuda else ["f32"]
    rates = {}
    try:
        for case in cases:
            for precision in precisions:
                what = f"{case.what}, {precision}"
                with bench.report.attempt(what):
                    rates[what] = ours(bench, case, precision)
                    compare(bench, what, rates[what], case, "eager", case.pytorch.measure(precision, "eager"))
        for precision in precisions:
            for case in cases:
                what = f"{case.what}, {precision}"
                if what in rates:
                    compare(bench, what, rates[what], case, "compiled", case.pytorch.measure(precision, "compiled"))
    finally:
        for case in cases:
            case.pytorch.end()


def ours(bench, case, precision):
    """The median of windows of steps, after those in which kernels are compiled and tuned."""
    windows, every = (3, 1) if bench.quick else (8, 20)
    spec = bench.spec(case.job(every * (windows + 4), every))
    with Peak() as peak:
        run = bench.train(spec, "--set", f"precision={precision}")
    batch = int(re.search(r"^batch_size = (\d+)$", spec.read_text(), re.M)[1])
    rate = run.rate(windows) * case.units / batch
    waits = statistics.median(e.get("data_wait", 0.0) for e in run.of("step")[-windows:])
    memory = peak.told()
    told = f"{rate:,.0f} {case.unit}, {100 * waits:.0f} % of it waiting for data"
    told += "" if memory is None else f", peak {memory} MiB"
    bench.report.note(f"{case.what}, {precision}", told, rate=rate, data_wait=waits, peak_mib=memory)
    return rate


def compare(bench, what, rate, case, way, theirs):
    if "rate" not in theirs:
        return bench.report.skip(theirs["why"], f"{what}, against PyTorch {way}")
    ratio = rate / theirs["rate"]
    figure = f"{ratio:.2f} of {theirs['rate']:,.0f} {case.unit} ({theirs['layout']}, {theirs['peak_mib']:.0f} MiB)"
    what = f"{what}, against PyTorch {way}"
    if way == "eager" and not bench.quick:
        bench.report.check(what, figure, "0.90", ratio >= 0.9, ratio=ratio, theirs=theirs)
    else:
        bench.report.note(what, figure, {"eager": "0.90", "compiled": "1.00"}[way], ratio=ratio, theirs=theirs)


class PyTorch:
    """`torch_side.py`, once it is asked: one line in, one line out."""

    def __init__(self, bench, theirs):
        self.bench, self.process = bench, None
        self.log = bench.folder("torch") / "log"
        here = pathlib.Path(__file__).resolve().parent / "torch_side.py"
        device = "cuda" if bench.is_cuda else "cpu"
        self.command = [bench.args.python, here, *theirs, "--device", device, *(["--quick"] if bench.quick else [])]

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [str(c) for c in self.command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                cwd=self.bench.scratch)

    def measure(self, precision, way):
        left = self.bench.until - time.monotonic()
        if left < (60 if way == "compiled" else 10):
            return dict(why="not run: the section's time is over")
        if self.process is None:
            self.start()
        try:
            self.process.stdin.write(f"{precision} {way} {left:.0f}\n")
            self.process.stdin.flush()
            answered = select.select([self.process.stdout], [], [], left)[0]
            line = self.process.stdout.readline() if answered else ""
        except BrokenPipeError:
            line = ""
        if line:
            return json.loads(line)
        self.end()
        return dict(why=f"not run: no answer; it last said: {tail(self.log, 300)}")

    def end(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def first_step(bench):
    """From the start of the process to the end of the first step."""
    precision = "bf16" if bench.is_cuda else "f32"
    for name, job in both(bench, 3, 1):
        with bench.report.attempt(f"{name}, first step"):
            spec, cache = bench.spec(job), bench.folder("cold")
            for state in ("cold", "warm", "warm, once more"):
                seconds = until_first_step(bench, spec, precision, cache)
                what = f"{name}, {precision}, first step, kernel cache {state}"
                bench.report.note(what, f"{seconds:.2f} s", seconds=seconds)
            kept = sum(f.stat().st_size for f in cache.rglob("*") if f.is_file())
            bench.report.note(f"{name}, kernel cache", f"{kept / 2**20:.1f} MiB")


def until_first_step(bench, spec, precision, cache):
    out = bench.folder("first") / "run"
    metrics, began = out / "metrics.jsonl", time.monotonic()
    run = bench.start(spec, out, "--set", f"precision={precision}", env=bench.environment(cache=cache))
    seconds = None
    while run.poll() is None and seconds is None:
        if metrics.exists() and metrics.stat().st_size > 0:
            seconds = time.monotonic() - began
        elif time.monotonic() > bench.until:
            break
        time.sleep(0.002)
    bench.wait(run)
    if seconds is None:
        seconds = time.monotonic() - began
    return seconds


def sync(bench):
    """What averaging over a world of one costs: the same steps with NCCL and without, in turn."""
    if bench.needs_cuda():
        return
    every, windows = (1, 2) if bench.quick else (20, 5)
    for name, job in both(bench, every * (windows + 3), every):
        what = f"{name}, bf16, gradient sync at world 1"
        with bench.report.attempt(what):
            spec, rates = bench.spec(job), {"gloo": [], "nccl": []}
            for _ in range(3):
                for backend, seen in rates.items():
                    run = bench.train(spec, "--set", "precision=bf16", "--set", f"backend={backend}")
                    seen.append(run.rate(windows))
            alone, synced = (statistics.median(seen) for seen in rates.values())
            cost = alone / synced - 1
            bench.report.check(what, f"{100 * cost:.1f} % of a step", "3 %", cost < 0.03, rates=rates)


# `| 12.3µs    | name of a kernel`, as CubeCL writes it for each launch.
LAUNCH = re.compile(r"\| (\d+(?:\.\d+)?)(ns|µs|ms|s)\s*\| ([^|]+)$")
SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def profile(bench):
    """Where the device's time goes, by CubeCL's own profile; kernels then run one by one, so this is no measure of speed."""
    precision = "bf16" if bench.is_cuda else "f32"
    for name, job in both(bench, 4, 1):
        with bench.report.attempt(f"{name}, profile"):
            profile_of(bench, name, bench.spec(job), precision)


def profile_of(bench, name, spec, precision):
    log = bench.folder("profile") / "log"
    # Once without, so that nothing is compiled or tuned under the profile.
    bench.train(spec, "--set", f"precision={precision}")
    bench.train(spec, "--set", f"precision={precision}", env=bench.environment(CUBECL_DEBUG_LOG=str(log)))
    spent, launches = {}, 0
    for line in open(log, errors="replace") if log.exists() else []:
        if found := LAUNCH.search(line.rstrip()):
            kernel = found[3].strip()
            spent[kernel] = spent.get(kernel, 0.0) + float(found[1]) * SECONDS[found[2]]
            launches += 1
    if not spent:
        return bench.report.note(f"{name}, profile", "CubeCL wrote none")
    total = sum(spent.values())
    bench.report.note(f"{name}, {precision}, 4 steps", f"{launches} launches, {1e3 * total:.1f} ms", kernels=spent)
    for kernel, seconds in sorted(spent.items(), key=lambda item: -item[1])[:8]:
        bench.report.note(f"  {100 * seconds / total:4.1f} %", kernel)
