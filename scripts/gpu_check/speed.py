"""How fast a device trains, beside PyTorch on the same device and in the same call."""
import itertools, json, pathlib, re, select, statistics, subprocess, time
from . import jobs
from .bench import Failed, tail
from .memory import Peak

PRECISIONS = ["bf16", "tf32", "f32"]
SIZE = (6, 6, 384, 256, 64)
TINY = (*jobs.TINY, 4)


class Case:
    """One job on both sides. `units` make a step."""

    def __init__(self, what, job, theirs, units, unit):
        self.what, self.job, self.theirs, self.units, self.unit = what, job, theirs, units, unit


def resnet(bench):
    job = lambda batch: lambda steps, every: jobs.resnet_speed(bench, batch, steps, every)
    theirs = lambda batch: dict(model="resnet", batch=batch)
    batches = [8] if bench.quick else [128] if bench.short else [128, 512]
    name = jobs.convolutions(bench)[0]
    side_by_side(bench, [Case(f"{name}, batch {b}", job(b), theirs(b), b, "samples/s") for b in batches])


def gpt(bench):
    if bench.needs(bench.data / "tinyshakespeare.txt"):
        return
    size = *_, block, batch = TINY if bench.quick else SIZE
    theirs = dict(model="gpt", batch=batch, size=size[:4])
    job = lambda steps, every: jobs.gpt_speed(bench, size, steps, every)
    what = f"{name_of(size)}, block {block}, batch {batch}"
    side_by_side(bench, [Case(what, job, theirs, batch * block, "tokens/s")])


def language_models(bench):
    """In bf16, with the tokens and logits of the published models."""
    if bench.needs(bench.data / "tinyshakespeare.txt"):
        return
    presets, block, batch = (["tiny"], 16, 4) if bench.quick else (["smollm2-135m", "qwen2.5-0.5b"], 1024, 8)
    cases = []
    for preset in presets:
        job = lambda steps, every, preset=preset: jobs.lm_speed(bench, preset, block, batch, steps, every)
        theirs = dict(model="llama", batch=batch, preset=preset, block=block)
        cases.append(Case(f"{preset}, block {block}, batch {batch}", job, theirs, batch * block, "tokens/s"))
    side_by_side(bench, cases, ["bf16"])


def name_of(size):
    return "GPT {}/{}/{}".format(*size)


def both(bench, steps, every):
    """A job of each model, with its name."""
    size, batch = (TINY, 8) if bench.quick else (SIZE, 128)
    cases = [(f"{jobs.convolutions(bench)[0]}, batch {batch}", jobs.resnet_speed(bench, batch, steps, every))]
    if (bench.data / "tinyshakespeare.txt").exists():
        cases.append((name_of(size), jobs.gpt_speed(bench, size, steps, every)))
    return cases


def side_by_side(bench, cases, precisions=PRECISIONS):
    """Each precision on both sides in turn; what PyTorch compiles comes last, as far as there is time."""
    precisions = precisions if bench.is_cuda else ["f32"]
    rates, pytorch = {}, PyTorch(bench)
    try:
        for case, precision in bench.rows(itertools.product(cases, precisions)):
            what = f"{case.what}, {precision}"
            with bench.report.attempt(what):
                rates[what] = ours(bench, case, precision)
                compare(bench, what, rates[what], case, "eager", pytorch.measure(case, precision, "eager"))
        for precision, case in itertools.product(precisions, cases):
            what = f"{case.what}, {precision}"
            if what in rates:
                compare(bench, what, rates[what], case, "compiled", pytorch.measure(case, precision, "compiled"))
    finally:
        pytorch.end()


def ours(bench, case, precision):
    """The median of windows of steps, after those in which kernels are compiled and tuned."""
    windows, every = (3, 1) if bench.quick else (8, 20)
    spec = bench.spec(case.job(every * (windows + 4), every))
    with Peak(bench.memory) as peak:
        run = bench.train(spec, "--set", f"precision={precision}")
    batch = int(re.search(r"^batch_size = (\d+)$", spec.read_text(), re.M)[1])
    rate = run.rate(windows) * case.units / batch
    waits = statistics.median(e.get("data_wait", 0.0) for e in run.of("step")[-windows:])
    memory = peak.told()
    told = f"{rate:,.0f} {case.unit}, {100 * waits:.0f} % of it waiting for data"
    mfu = [e["mfu"] for e in run.of("step")[-windows:] if e.get("mfu")]
    mfu = statistics.median(mfu) if mfu else None
    told += "" if mfu is None else f", MFU {100 * mfu:.0f} %"
    told += f", {mib(memory)}"
    bench.report.note(f"{case.what}, {precision}", told, rate=rate, data_wait=waits, peak_mib=memory, mfu=mfu)
    return rate


def compare(bench, what, rate, case, way, theirs):
    if "rate" not in theirs:
        cut, against = theirs.get("cut", False), f"{what}, against PyTorch {way}"
        if cut and way == "eager":
            return bench.report.cut(against, theirs["why"])
        return bench.report.skip(theirs["why"], against, cut=cut)
    ratio = rate / theirs["rate"]
    figure = f"{ratio:.2f} of {theirs['rate']:,.0f} {case.unit} ({theirs['layout']}, {mib(theirs['peak_mib'])})"
    what = f"{what}, against PyTorch {way}"
    if way == "eager" and not bench.quick:
        bench.report.check(what, figure, "0.90", ratio >= 0.9, ratio=ratio, theirs=theirs)
    else:
        bench.report.note(what, figure, {"eager": "0.90", "compiled": "1.00"}[way], ratio=ratio, theirs=theirs)


def mib(memory):
    """Of the device, by the most that was in use."""
    return "memory not known" if memory is None else f"{memory} MiB with its context"


class PyTorch:
    """`torch_side.py`, once it is asked: one line in, one line out. One process for all cases, so that no other's memory is taken
    for a case's."""

    def __init__(self, bench):
        self.bench, self.process, self.before = bench, None, None
        self.log = bench.folder("torch") / "log"
        here = pathlib.Path(__file__).resolve().parent / "torch_side.py"
        device = bench.device if bench.is_cuda else "cpu"
        self.command = [bench.args.python, here, "--device", device, *(["--quick"] if bench.quick else [])]

    def start(self):
        self.before = self.bench.memory.used()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [str(c) for c in self.command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                cwd=self.bench.scratch)

    def measure(self, case, precision, way):
        if not self.bench.has(60 if way == "compiled" else 10):
            return dict(why="not run: no time was left for it", cut=True)
        if self.process is None:
            self.start()
        with Peak(self.bench.memory, self.before) as peak:
            answer = self.ask(dict(case.theirs, precision=precision, way=way))
        if "window" in answer:
            answer["peak_mib"] = peak.told(answer["window"])
        return answer

    def ask(self, question):
        left, answered = self.bench.left(), []
        try:
            self.process.stdin.write(json.dumps(dict(question, seconds=left)) + "\n")
            self.process.stdin.flush()
            answered = select.select([self.process.stdout], [], [], left)[0]
            line = self.process.stdout.readline() if answered else ""
        except BrokenPipeError:
            line = ""
        if line:
            return json.loads(line)
        self.end()
        why = "it ended" if answered else f"no answer after {left:.0f} s, all that was left for it"
        last = (tail(self.log).splitlines() or ["nothing"])[-1]
        return dict(why=f"not run: {why}; it last said: {last}", cut=not answered)

    def end(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def first_step(bench):
    """From the start of the process to the end of the first step."""
    precision = "bf16" if bench.is_cuda else "f32"
    # One step, and so nothing of a second one before the first is written down.
    for name, job in bench.rows(both(bench, 1, 1)):
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
    while seconds is None and run.poll() is None and bench.has(0):
        if metrics.exists() and b'"event":"step"' in metrics.read_bytes():
            seconds = time.monotonic() - began
        time.sleep(0.002)
    bench.wait(run)
    if seconds is None:
        raise Failed("the run ended before its first step was seen")
    return seconds


def sync(bench):
    """What averaging over a world of one costs: the same steps with NCCL and without, in turn."""
    if bench.needs_cuda():
        return
    every, windows = (1, 2) if bench.quick else (20, 5)
    for name, job in bench.rows(both(bench, every * (windows + 3), every)):
        what = f"{name}, bf16, gradient sync at world 1"
        with bench.report.attempt(what):
            spec, rates = bench.spec(job), {"gloo": [], "nccl": []}
            for rounds in range(1, 4):
                began = time.monotonic()
                for backend, seen in rates.items():
                    run = bench.train(spec, "--set", "precision=bf16", "--set", f"backend={backend}")
                    seen.append(run.rate(windows))
                if not bench.has(1.5 * (time.monotonic() - began)):
                    break
            alone, synced = (statistics.median(seen) for seen in rates.values())
            cost = alone / synced - 1
            figure = f"{100 * cost:.1f} % of a step, median of {rounds} of 3 rounds"
            bench.report.check(what, figure, "3 %", cost < 0.03, rates=rates)


# `| 12.3µs    | name of a kernel`, as CubeCL writes it for each launch.
LAUNCH = re.compile(r"\| (\d+(?:\.\d+)?)(ns|µs|ms|s)\s*\| ([^|]+)$")
SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def profile(bench):
    """Where the device's time goes, by CubeCL's own profile; kernels then run one by one, so this is no measure of speed."""
    precision = "bf16" if bench.is_cuda else "f32"
    for name, job in bench.rows(both(bench, 4, 1)):
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
