vocabulary = config["preprocessing"]["vocabulary"]
context = config["preprocessing"]["block_size"]


@torch.no_grad()
def generate(prompt, length=200, temperature=0.8):
    """The prompt and `length` more characters; with temperature 0 always the most probable one."""
    tokens = [vocabulary.index(character) for character in prompt]
    for _ in range(length):
        scores = model(torch.tensor([tokens[-context:]]))[0, -1, : len(vocabulary)]
        if temperature == 0:
            tokens.append(int(scores.argmax()))
        else:
            tokens.append(int(torch.multinomial((scores / temperature).softmax(0), 1)))
    return "".join(vocabulary[token] for token in tokens)


for prompt in sys.argv[1:]:
    print(generate(prompt))
