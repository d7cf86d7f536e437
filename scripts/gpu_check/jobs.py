"""The specs that the sections run."""

# Layers, heads, width and block of the GPT that only tries the script.
TINY = (1, 2, 16, 16)
STEPS = "save_every = \"never\"\nepochs = 1000\n"
QUIET = "[checkpoint]\nkeep_best = 0\n[metrics]\nlog_every = {every}\n"


def linear(bench, steps=20):
    return _job("linear", 32, steps, 1, f"""
[model]
name = "linear"
{_golden(bench, "linear")}
[dataset]
name = "random"
samples = 2048
features = 20
val_split = 0.25
[optimizer]
name = "sgd"
lr = 0.01
""")


def mlp(bench, steps=20):
    hidden, train = ([24], 512) if bench.quick else ([512, 512], 20000)
    return _job("mlp", 64, steps, 1, f"""
[model]
name = "mlp"
hidden = {hidden}
{_golden(bench, "mlp")}
[dataset]
name = "mnist"
root = "{bench.data}/mnist"
val_split = 0.1
max_train = {train}
max_val = 512
[optimizer]
name = "sgd"
lr = 0.01
momentum = 0.9
""")


def gpt(bench, steps=20):
    layers, heads, width, block = TINY if bench.quick else (4, 4, 128, 64)
    return _job("gpt", 4, steps, 1, f"""
[model]
name = "gpt"
n_layer = {layers}
n_head = {heads}
n_embd = {width}
{_golden(bench, "gpt")}
[dataset]
name = "text"
path = "{bench.data}/tinyshakespeare.txt"
block_size = {block}
max_val = 32
[optimizer]
name = "adamw"
lr = 1e-3
betas = [0.9, 0.99]
weight_decay = 0.1
""")


RESNET = """name = "resnet18"
stem = "cifar\""""
CNN = """name = "cnn"
channels = [4, 8]
hidden = 16"""


def convolutions(bench):
    """The model of images that suits the device, and its job."""
    return ("cnn" if bench.quick else "resnet18", images)


def images(bench, steps=20):
    """Convolutions, with batch norm where the model has it, on drawn images."""
    return _job("images", 16, steps, 1, f"""
[model]
{CNN if bench.quick else RESNET}
[dataset]
name = "shapes"
train = 512
val = 64
size = 16
channels = 3
[optimizer]
name = "sgd"
lr = 0.01
momentum = 0.9
""")


def resnet_speed(bench, batch, steps, every):
    """The work of `torch_side.py`'s `resnet`."""
    return _job("resnet-speed", batch, steps, every, f"""
[model]
{CNN if bench.quick else RESNET}
num_classes = 10
[dataset]
name = "cifar10"
root = "{noise(bench)}"
verify = false
drop_last = true
workers = 4
[optimizer]
name = "adamw"
lr = 5e-4
weight_decay = 1e-4
""")


def gpt_speed(bench, size, steps, every):
    """The work of `torch_side.py`'s `gpt`."""
    layers, heads, width, block, batch = size
    return _job("gpt-speed", batch, steps, every, f"""
[model]
name = "gpt"
n_layer = {layers}
n_head = {heads}
n_embd = {width}
block_size = {block}
[dataset]
name = "text"
path = "{bench.data}/tinyshakespeare.txt"
block_size = {block}
workers = 2
[optimizer]
name = "adamw"
lr = 1e-3
betas = [0.9, 0.99]
weight_decay = 0.1
""")


def lm_speed(bench, preset, block, batch, steps, every):
    """The work of `torch_side.py`'s `llama`."""
    return _job("lm-speed", batch, steps, every, f"""
[model]
name = "llama"
preset = "{preset}"
[dataset]
name = "text"
path = "{bench.data}/tinyshakespeare.txt"
cache = "{bench.scratch}/tokens"
block_size = {block}
[tokenizer]
kind = "bytes"
[optimizer]
name = "adamw"
lr = 1e-4
""")


def noise(bench):
    """CIFAR-10's files with random pixels: speed does not depend on them."""
    import os
    root = bench.scratch / "noise"
    folder = root / "cifar-10-batches-bin"
    if not folder.exists():
        folder.mkdir(parents=True)
        records = bytearray(os.urandom(10_000 * 3073))
        for i in range(10_000):
            records[i * 3073] = i % 10
        for name in [*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin"]:
            (folder / name).write_bytes(records)
    return root


def _job(name, batch, steps, every, tables):
    head = f"name = \"{name}\"\nseed = 7\nbatch_size = {batch}\n{STEPS}"
    return f"{head}{tables}[train]\nmax_steps = {steps}\neval_every = 0\n{QUIET.format(every=every)}"


def _golden(bench, model):
    path = bench.args.golden / f"{model}_init.safetensors"
    fits = path.exists() and (not bench.quick or model == "linear")
    return f"pretrained = \"{path}\"" if fits else ""
