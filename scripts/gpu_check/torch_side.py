"""The same work in PyTorch. Reads lines of JSON, each with `model` (resnet, gpt or llama), `batch`, `size` (of gpt), `preset` and `block` (of
llama), `precision`, `way` (eager or compiled) and `seconds`; answers each with one: units per second, the memory layout that was faster, and when that was measured, for
whoever looks at the device's memory meanwhile.

The batches lie on the device already, so nothing waits for data: an upper bound of what a PyTorch job does.
"""
import argparse, gc, json, sys, time
import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (p.view(b, t, self.heads, c // self.heads).transpose(1, 2) for p in self.c_attn(x).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width)
        self.fc, self.proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.proj(F.gelu(self.fc(self.ln_2(x))))


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, block, vocab=65):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(block, width)
        self.h = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x)).flatten(0, 1)


def resnet(job):
    import torchvision
    model = torchvision.models.resnet18(num_classes=10)
    model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    batch = job["batch"]
    batches = [(torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))) for _ in range(4)]
    return model, batches, dict(lr=5e-4, weight_decay=1e-4), batch, [torch.contiguous_format, torch.channels_last]


def gpt(job):
    layers, heads, width, block = job["size"]
    batches = [torch.randint(0, 65, (job["batch"], block + 1)) for _ in range(4)]
    batches = [(b[:, :-1].contiguous(), b[:, 1:].flatten()) for b in batches]
    opt = dict(lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    return Gpt(layers, heads, width, block), batches, opt, job["batch"] * block, [torch.contiguous_format]


class LlamaBlock(nn.Module):
    """As transformers' LlamaDecoderLayer; `bias` of queries, keys and values as in Qwen2."""

    def __init__(self, width, inner, heads, shared, bias):
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.ln_1, self.ln_2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.q = nn.Linear(width, width, bias=bias)
        self.k, self.v = (nn.Linear(width, shared * self.size, bias=bias) for _ in range(2))
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, cos, sin):
        b, t, c = x.shape
        normed = self.ln_1(x)
        split = lambda linear, heads: linear(normed).view(b, t, heads, self.size).transpose(1, 2)
        q, k, v = split(self.q, self.heads), split(self.k, self.shared), split(self.v, self.shared)
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, c))
        normed = self.ln_2(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


def rotated(x, cos, sin):
    a, b = x.chunk(2, -1)
    return (x * cos + torch.cat([-b, a], -1) * sin).to(x.dtype)


class Llama(nn.Module):
    """With a tied head."""

    def __init__(self, layers, width, inner, heads, shared, vocab, bias, block):
        super().__init__()
        self.embed, self.norm = nn.Embedding(vocab, width), nn.RMSNorm(width, eps=1e-5)
        nn.init.normal_(self.embed.weight, std=0.02)
        self.layers = nn.ModuleList([LlamaBlock(width, inner, heads, shared, bias) for _ in range(layers)])
        size = width // heads
        angles = torch.outer(torch.arange(block).float(), 1e5 ** -(torch.arange(0, size, 2).float() / size)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return F.linear(self.norm(x), self.embed.weight).flatten(0, 1)


# Layers, width, inner width, heads, heads of keys, tokens, and whether there are biases, as in the config.json of each.
LLAMAS = {
    "tiny": (2, 64, 172, 4, 2, 257, False),
    "smollm2-135m": (30, 576, 1536, 9, 3, 49152, False),
    "qwen2.5-0.5b": (24, 896, 4864, 14, 2, 151936, True),
}


def llama(job):
    size, batch, block = LLAMAS[job["preset"]], job["batch"], job["block"]
    batches = [torch.randint(0, 257, (batch, block + 1)) for _ in range(4)]
    batches = [(b[:, :-1].contiguous(), b[:, 1:].flatten()) for b in batches]
    return Llama(*size, block), batches, dict(lr=1e-4), batch * block, [torch.contiguous_format]


def measure(args, job, seconds, layout):
    device, began = torch.device(args.device), time.monotonic()
    precision, way = job["precision"], job["way"]
    tf32 = precision != "f32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    model, batches, options, units, _ = MODELS[job["model"]](job)
    model = model.to(device, memory_format=layout)
    # Only images have a layout to choose.
    place = lambda x: x.to(device, memory_format=layout) if x.dim() == 4 else x.to(device)
    batches = [(place(x), y.to(device)) for x, y in batches]
    optimizer = torch.optim.AdamW(model.parameters(), fused=True, **options)
    if way == "compiled":
        torch._dynamo.reset()
        model = torch.compile(model)
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None

    def step(i):
        x, y = batches[i % len(batches)]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = F.cross_entropy(model(x).float(), y)
        loss.backward()
        optimizer.step()

    warm, windows, every = (1, 3, 1) if args.quick else (15, 8, 20)
    for i in range(warm):
        step(i)
    wait()
    rates = []
    for _ in range(windows):
        at = time.perf_counter()
        for i in range(every):
            step(i)
        wait()
        rates.append(units * every / (time.perf_counter() - at))
        if time.monotonic() - began > seconds:
            break
    name = "channels last" if layout == torch.channels_last else "contiguous"
    return dict(rate=sorted(rates)[len(rates) // 2], layout=name, window=[began, time.monotonic()], torch=torch.__version__)


def release():
    """What is kept for the next measurement would be taken for its memory."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


MODELS = {"resnet": resnet, "gpt": gpt, "llama": llama}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if args.device.startswith("cuda:"):
        torch.cuda.set_device(args.device)
    for line in sys.stdin:
        job, found = json.loads(line), []
        try:
            layouts = MODELS[job["model"]](job)[-1]
            # What is compiled takes long to measure, and channels last is its better layout for images.
            layouts = layouts[-1:] if job["way"] == "compiled" else layouts
            for layout in layouts:
                found.append(measure(args, job, job["seconds"] / len(layouts), layout))
                release()
            answer = max(found, key=lambda f: f["rate"])
        except Exception as e:
            answer = dict(why=f"not run: {type(e).__name__}: {str(e)[:300]}")
        release()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
