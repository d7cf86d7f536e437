"""Whether a device computes what the CPU does, alone and together, and goes on where it stopped."""
import array, contextlib, itertools, json, shutil, socket, struct
from . import jobs
from .bench import Failed, Run, largest_gap
from .report import OutOfTime

NEAR = 1e-4
MODELS = [("linear", jobs.linear), ("mlp", jobs.mlp), ("gpt", jobs.gpt)]


def missing(bench):
    """Why the device under test is not there; None where it is."""
    try:
        bench.known = json.loads(bench.ddp_run("env", "--json"))
    except (Failed, OutOfTime) as e:
        return str(e)
    device = bench.known["devices"][bench.device.split(":")[0]]
    return None if device["available"] else device["detail"]


def env(bench):
    """What the binary says of this machine."""
    bench.report.facts["env"] = bench.known
    bench.report.note("ddp-run env", json.dumps(bench.known.get("devices", bench.known)))
    if bench.packages:
        bench.report.note("Python packages", bench.packages.told())


def golden(bench):
    for name, job in bench.rows([*MODELS, jobs.convolutions(bench)]):
        steps = 5 if bench.quick else 20
        what = f"{name}, {steps} steps of f32 against the CPU"
        with bench.report.attempt(what):
            spec = bench.spec(job(bench, steps))
            gap = largest_gap(bench.train(spec, device="cpu").losses(), bench.train(spec).losses())
            if name == "resnet18":
                # Batch norm over few images multiplies what rounding leaves.
                bench.report.note(what, f"largest gap {gap:.1e}", gap=gap)
            else:
                near(bench, what, gap)


def nccl(bench):
    if bench.needs_cuda():
        return
    for name, job in bench.rows(MODELS[1:]):
        what = f"{name}, world 1 on NCCL against none"
        with bench.report.attempt(what):
            spec = bench.spec(job(bench))
            alone = bench.train(spec, "--set", "backend=gloo").losses()
            with heard(bench) as variables:
                one = bench.train(spec, "--set", "backend=nccl", env=bench.environment(**variables))
            near(bench, what, largest_gap(alone, one.losses()))


@contextlib.contextmanager
def heard(bench):
    """Variables that make NCCL write; where it writes nothing, it took no part."""
    folder = bench.folder("nccl")
    yield dict(NCCL_DEBUG="INFO", NCCL_DEBUG_FILE=f"{folder}/%h.%p")
    if not any(file.stat().st_size for file in folder.iterdir()):
        raise Failed("the run ended well, but NCCL wrote nothing: it took no part")


def world2(bench):
    """Two ranks on the one device: what they compute together is what two do on the CPU."""
    shared = ["--set", "launch.share_devices=true", "--set", "distributed.timeout=60"]
    two = [*shared, "--nproc-per-node", "2", "--set", "backend=gloo"]
    how = "NCCL (host id trick)" if bench.is_cuda else "gloo, ranks started by hand"
    backend = "nccl" if bench.is_cuda else "gloo"
    for name, job in bench.rows(MODELS[1:]):
        spec = bench.spec(job(bench, 5 if bench.quick else 20))
        cpu = None
        with bench.report.attempt(f"{name}, world 2 on the CPU"):
            cpu = bench.train(spec, *two, device="cpu").losses()
        if cpu is None:
            continue
        what = f"{name}, world 2 through gloo"
        with bench.report.attempt(what):
            near(bench, what, largest_gap(cpu, bench.train(spec, *two).losses()))
        what = f"{name}, world 2 through {how}"
        with bench.report.attempt(what):
            with heard(bench) if bench.is_cuda else contextlib.nullcontext({}) as variables:
                hands = by_hand(bench, spec, variables, *shared, "--set", f"backend={backend}")
            near(bench, what, largest_gap(cpu, hands.losses()))


def by_hand(bench, spec, more, *flags):
    """Two ranks as torchrun would start them on two hosts of one device each. NCCL refuses two ranks on one device of one
    host, and goes by NCCL_HOSTID for which host that is."""
    out = bench.folder("by-hand") / "run"
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ranks = []
    try:
        for rank in range(2):
            variables = dict(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", GROUP_RANK=str(rank),
                             MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), NCCL_HOSTID=f"gpu-check-{rank}",
                             NCCL_SOCKET_IFNAME="lo", **more)
            ranks.append(bench.start(spec, out, *flags, env=bench.environment(**variables)))
        for rank in ranks:
            bench.wait(rank)
    finally:
        for rank in ranks:
            bench.kill(rank)
    return Run(out, 0.0)


def resume(bench):
    """A run that is killed and goes on ends in the bits of one that was left alone, as far as two of those do."""
    steps, dies = (12, 7) if bench.quick else (60, 37)
    for name, job in bench.rows([*MODELS[1:], jobs.convolutions(bench)]):
        with bench.report.attempt(f"{name}, killed and resumed"):
            spec = bench.spec(job(bench, steps))
            save = ["--set", f"save_every=\"{steps // 6} steps\""]
            # The first run chooses its kernels on the way; what it chose is kept.
            _, whole, again = (weights(bench.train(spec, *save)) for _ in range(3))
            out = bench.folder("killed") / "run"
            fault = f"kill:rank=0,phase=forward,step={dies}"
            bench.train(spec, *save, out=out, env=bench.environment(DDP_RUN_FAULT=fault), code=90)
            resumed = goes_on(bench.train(spec, *save, out=out))
            apart, gap = difference(whole, again), difference(whole, weights(resumed))
            bench.report.note(f"{name}, the same run twice", bits(apart), gap=apart)
            goal = "same bits" if apart == 0 else f"{10 * apart:.1e} (ten times that)"
            bench.report.check(f"{name}, killed and resumed", bits(gap), goal, gap <= 10 * apart, gap=gap)


def reload(bench):
    """A checkpoint of the CPU on the device, and back."""
    half = 3 if bench.quick else 10
    save, longer = ["--set", f"save_every=\"{half} steps\""], ["--set", f"train.max_steps={2 * half}"]
    ways = [("cpu", bench.device), (bench.device, "cpu")]
    for (name, job), (here, there) in bench.rows(itertools.product(MODELS[1:], ways)):
        what = f"{name}, a checkpoint of {here}"
        with bench.report.attempt(f"{what} on {there}"):
            spec = bench.spec(job(bench, half))
            stay = bench.train(spec, *save, device=here).out
            go = shutil.copytree(stay, bench.folder("copy") / "run")
            seen = [evaluate(bench, spec, go, device) for device in (here, there)]
            near(bench, f"{what} evaluated on {there}", abs(seen[0] - seen[1]))
            stayed = goes_on(bench.train(spec, *save, *longer, out=stay, device=here))
            went = goes_on(bench.train(spec, *save, *longer, "--accept-changes", out=go, device=there))
            near(bench, f"{what} goes on on {there}", largest_gap(stayed.losses(), went.losses()))


def near(bench, what, gap):
    bench.report.check(what, f"largest gap {gap:.1e}", f"{NEAR:.0e}", gap <= NEAR, gap=gap)


def goes_on(run):
    if not run.of("resume"):
        raise Failed("the run started over")
    return run


def evaluate(bench, spec, run, device):
    text = bench.ddp_run("eval", spec, "--checkpoint", run, "--set", f"device={device}")
    return json.loads(text)["loss"]


def weights(run):
    """The f32 arrays of the newest checkpoint's model, by name."""
    with open(run.checkpoint() / "model.safetensors", "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        data = file.read()
    found = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            found[name] = array.array("f", data[begin:end])
    return found


def difference(a, b):
    """The largest; 0 where all bits are the same."""
    if a.keys() != b.keys():
        raise Failed("the checkpoints hold other arrays")
    pairs = ((x, b[name]) for name, x in a.items() if x.tobytes() != b[name].tobytes())
    return max((abs(p - q) for x, y in pairs for p, q in zip(x, y)), default=0.0)


def bits(gap):
    return "same bits" if gap == 0 else f"largest difference {gap:.1e}"
