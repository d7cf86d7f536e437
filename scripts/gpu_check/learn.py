"""Whether training on the device reaches what it should."""
import re
from . import jobs


def cifar(bench):
    """The recipe of configs/cifar-93.toml, in bf16 on CUDA."""
    root = bench.cifar()
    if bench.needs(root / "cifar-10-binary.tar.gz"):
        return
    spec = bench.args.configs / "cifar-93.toml"
    flags = ["--set", f"dataset.root={root}", "--set", f"precision={precision(bench)}"]
    if bench.quick:
        model = re.compile(r'^name = "resnet18".*\nstem = .*$', re.M)
        spec = bench.spec(model.sub(jobs.CNN, spec.read_text()))
        flags += ["--set", "train.max_steps=3", "--set", "epochs=1", "--set", "batch_size=16",
                  "--set", "dataset.val_split=0.99", "--set", "dataset.max_val=32"]
    run = bench.train(spec, *flags)
    last = run.of("epoch")[-1]
    accuracy, epochs = last["val"]["accuracy"], run.of("epoch")
    samples = sum(e["train"]["n"] for e in epochs) / sum(e["seconds"] for e in epochs)
    figure = f"{100 * accuracy:.2f} % after {last['epoch'] + 1} epochs, {run.wall:.0f} s, {samples:.0f} samples/s with validation"
    report(bench, "CIFAR-10 test accuracy", figure, "93 %", accuracy >= 0.93, [e["val"]["accuracy"] for e in epochs])


def shakespeare(bench):
    """nanoGPT's recipe for a GPU: 6 layers, 6 heads, 384 wide, windows of 256."""
    path = bench.data / "tinyshakespeare.txt"
    if bench.needs(path):
        return
    changes = dict(n_layer=6, n_head=6, n_embd=384, block_size=256, dropout=0.2)
    steps, batch = 2500, 64
    if bench.quick:
        changes.update(n_layer=1, n_head=2, n_embd=16, block_size=16)
        steps, batch = 3, 4
    flags = [f"model.{key}={value}" for key, value in changes.items()]
    flags += [f"dataset.path={path}", f"dataset.block_size={changes['block_size']}", "dataset.workers=2",
              f"train.max_steps={steps}", f"batch_size={batch}", "save_every=\"never\"", f"precision={precision(bench)}"]
    if bench.quick:
        flags += ["dataset.max_val=8"]
    run = bench.train(bench.args.configs / "gpt.toml", *(part for flag in flags for part in ("--set", flag)))
    loss = run.of("epoch")[-1]["val"]["loss"]
    figure = f"{loss:.4f} after {steps} steps, {run.wall:.0f} s"
    report(bench, "tinyshakespeare 6/6/384, validation loss", figure, "1.50", loss <= 1.50, run.losses())


def precision(bench):
    return "bf16" if bench.is_cuda else "f32"


def report(bench, what, figure, goal, ok, curve):
    if bench.quick:
        bench.report.note(f"{what} (tiny)", figure, goal, curve=curve)
    else:
        bench.report.check(what, figure, goal, ok, curve=curve)
