def rotated(x, angles):
    a, b = x.chunk(2, dim=-1)
    cos, sin = angles.cos() * SCALE, angles.sin() * SCALE
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Attention(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.q_proj = nn.Linear(WIDTH, HEADS * HEAD, bias=QKV_BIAS)
        self.k_proj = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=QKV_BIAS)
        self.v_proj = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=QKV_BIAS)
        self.o_proj = nn.Linear(HEADS * HEAD, WIDTH, bias=OUTPUT_BIAS)
        self.q_norm = nn.RMSNorm(HEAD, eps=EPS) if QK_NORM else nn.Identity()
        self.k_norm = nn.RMSNorm(HEAD, eps=EPS) if QK_NORM else nn.Identity()
        self.window = WINDOW if layer >= WINDOW_FROM else 0

    def forward(self, x, angles):
        batch, time, _ = x.shape
        q = self.q_norm(self.q_proj(x).view(batch, time, HEADS, HEAD)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(batch, time, KV_HEADS, HEAD)).transpose(1, 2)
        v = self.v_proj(x).view(batch, time, KV_HEADS, HEAD).transpose(1, 2)
        q, k = rotated(q, angles), rotated(k, angles)
        k, v = (part.repeat_interleave(HEADS // KV_HEADS, dim=1) for part in (k, v))
        positions = torch.arange(time, device=x.device)
        before = positions[:, None] - positions
        seen = (before >= 0) & (before < (self.window or time))
        dropout = DROPOUT if self.training else 0.0
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, dropout_p=dropout)
        return self.o_proj(y.transpose(1, 2).reshape(batch, time, HEADS * HEAD))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(WIDTH, INNER, bias=MLP_BIAS)
        self.up_proj = nn.Linear(WIDTH, INNER, bias=MLP_BIAS)
        self.down_proj = nn.Linear(INNER, WIDTH, bias=MLP_BIAS)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.self_attn = Attention(layer)
        self.mlp = Mlp()
        self.input_layernorm = nn.RMSNorm(WIDTH, eps=EPS)
        self.post_attention_layernorm = nn.RMSNorm(WIDTH, eps=EPS)

    def forward(self, x, angles):
        x = x + self.self_attn(self.input_layernorm(x), angles)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Block(layer) for layer in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=EPS)

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        angles = positions[:, None] * torch.tensor(FREQUENCIES, device=tokens.device)
        x = self.embed_tokens(tokens)
        for block in self.layers:
            x = block(x, angles)
        return self.norm(x)


class Llama(nn.Module):
    """Tokens [batch, time] to scores of the next ones [batch, time, VOCABULARY]."""

    def __init__(self):
        super().__init__()
        self.model = Body()
        if not TIED:
            self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        head = self.model.embed_tokens if TIED else self.lm_head
        return functional.linear(self.model(tokens), head.weight)


model = Llama()
