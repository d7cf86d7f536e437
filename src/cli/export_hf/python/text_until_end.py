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
