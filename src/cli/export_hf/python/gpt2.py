class Conv1D(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = Conv1D(WIDTH, 3 * WIDTH)
        self.c_proj = Conv1D(WIDTH, WIDTH)

    def forward(self, x):
        batch, time, width = x.shape
        qkv = self.c_attn(x).view(batch, time, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        dropout = ATTENTION_DROPOUT if self.training else 0.0
        y = functional.scaled_dot_product_attention(*qkv, dropout_p=dropout, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, time, width))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc = Conv1D(WIDTH, INNER)
        self.c_proj = Conv1D(INNER, WIDTH)

    def forward(self, x):
        return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH, eps=EPS)
        self.attn = Attention()
        self.ln_2 = nn.LayerNorm(WIDTH, eps=EPS)
        self.mlp = Mlp()
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x):
        x = x + self.dropout(self.attn(self.ln_1(x)))
        return x + self.dropout(self.mlp(self.ln_2(x)))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, WIDTH)
        self.wpe = nn.Embedding(POSITIONS, WIDTH)
        self.dropout = nn.Dropout(EMBEDDING_DROPOUT)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH, eps=EPS)

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.wte(tokens) + self.wpe(positions))
        for block in self.h:
            x = block(x)
        return self.ln_f(x)


class Gpt2(nn.Module):
    """Tokens [batch, time] to scores of the next ones [batch, time, VOCABULARY]."""

    def __init__(self):
        super().__init__()
        self.transformer = Transformer()

    def forward(self, tokens):
        return functional.linear(self.transformer(tokens), self.transformer.wte.weight)


model = Gpt2()
