"""The jobs whose kernels are compiled: small shapes, with the options that add kernels."""

import pathlib

TEXT = "".join(
    f"line {n} of a text that a tokenizer can split: {n * 7919 % 1000:03}\n" for n in range(200)
)

CNN = """
[model]
name = "cnn"
channels = [8, 16]
hidden = 32
"""
SHAPES = """
[dataset]
name = "shapes"
train = 64
val = 16
size = 16
channels = {channels}
"""
SGD = """
[optimizer]
name = "sgd"
lr = 0.01
momentum = 0.9
nesterov = true
weight_decay = 1e-4
"""
ADAMW = """
[optimizer]
name = "adamw"
lr = 1e-3
"""

MODELS = {
    "linear": """
[model]
name = "linear"
[dataset]
name = "random"
samples = 128
features = 20
val_split = 0.25
"""
    + SGD,
    "mlp": """
[model]
name = "mlp"
hidden = [64, 64]
"""
    + SHAPES.format(channels=1)
    + SGD,
    "cnn": CNN + SHAPES.format(channels=1) + ADAMW,
    "gpt": """
[model]
name = "gpt"
n_layer = 2
n_head = 2
n_embd = 32
dropout = 0.1
[dataset]
name = "text"
path = "TEXT"
block_size = 16
max_val = 16
"""
    + ADAMW
    + """
decay = "matrices"
[scheduler]
name = "cosine"
unit = "step"
""",
    # All that its kinds add: norms of queries and keys, shared heads, a window.
    "llama": """
[model]
name = "llama"
model_type = "qwen3"
sliding_window = 9
[dataset]
name = "text"
path = "TEXT"
block_size = 16
max_val = 16
"""
    + ADAMW,
    "resnet18": """
[model]
name = "resnet18"
stem = "cifar"
"""
    + SHAPES.format(channels=3)
    + SGD,
    "vit": """
[model]
name = "vit"
patch_size = 4
num_layers = 2
num_heads = 2
hidden_dim = 32
dropout = 0.1
attention_dropout = 0.1
"""
    + SHAPES.format(channels=3)
    + ADAMW,
}
# More of `[train]` for some.
TRAIN = {
    "gpt": "clip_norm = 1.0\naccumulate = 2\n",
    "vit": "clip_norm = 1.0\nlabel_smoothing = 0.1\nmixup = 0.8\ncutmix = 1.0\n",
}


def write(name, folder, steps):
    """The path of the spec of a model, or of `optimizer-NAME`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.toml"
    path.write_text(text(name, folder, steps))
    return path


def text(name, folder, steps):
    if name.startswith("optimizer-"):
        tables = (
            CNN
            + SHAPES.format(channels=1)
            + f'\n[optimizer]\nname = "{name.removeprefix("optimizer-")}"\n'
        )
    else:
        tables = MODELS[name]
    if "TEXT" in tables:
        corpus = pathlib.Path(folder) / "text.txt"
        corpus.write_text(TEXT)
        tables = tables.replace("TEXT", str(corpus))
    return (
        f'name = "{name}"\nseed = 7\nbatch_size = 8\nepochs = 1000\nsave_every = "never"\n{tables}'
        f"[train]\nmax_steps = {steps}\n{TRAIN.get(name, '')}"
        # Texts are generated for a time: each length that a faster start reaches has kernels of its own.
        "[checkpoint]\nkeep_best = 0\n[metrics]\nlog_every = 1\nsamples = 0\n"
    )


def optimizers(listed):
    """The names in what `ddp-run list optimizers` prints.

    >>> optimizers("optimizers\\n  sgd    One.\\n  adam   Another:\\n         more of it.\\n")
    ['sgd', 'adam']
    """
    lines = listed.splitlines()[1:]
    return [
        line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("   ")
    ]
