tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
context = config["preprocessing"]["block_size"]
size = config["preprocessing"]["tokenizer"]["size"]
end = config["preprocessing"]["tokenizer"]["end"]


def encode(text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def decode(tokens):
    return tokenizer.decode(tokens, skip_special_tokens=False)


