tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
context = config["preprocessing"]["block_size"]
size = config["preprocessing"]["tokenizer"]["size"]
end = config["preprocessing"]["tokenizer"]["end"]


def encode(text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def decode(tokens):
    return tokenizer.decode(tokens, skip_special_tokens=False)


@torch.no_grad()
def generate(prompt, length=200, temperature=0.8):
    """The prompt and up to `length` more tokens; with temperature 0 always the most probable one."""
    tokens = encode(prompt)
    for _ in range(length):
        scores = model(torch.tensor([tokens[-context:]]))[0, -1, :size]
        if temperature == 0:
            token = int(scores.argmax())
        else:
            token = int(torch.multinomial((scores / temperature).softmax(0), 1))
        if token == end:
            break
        tokens.append(token)
    return decode(tokens)


for prompt in sys.argv[1:]:
    print(generate(prompt))
