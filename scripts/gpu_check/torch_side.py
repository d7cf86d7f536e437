"""The same work in PyTorch. Reads lines of JSON, each with `model` (resnet or gpt), `batch`, `size` (of gpt), `precision`, `way` (eager
or compiled) and `seconds`; answers each with one: units per second, the memory layout that was faster, and when that was measured, for
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


MODELS = {"resnet": resnet, "gpt": gpt}


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
