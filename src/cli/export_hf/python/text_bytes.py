context = config["preprocessing"]["block_size"]
# A token is a byte; the last one ends a text.
size, end = 257, 256


def encode(text):
    return list(text.encode())


def decode(tokens):
    return bytes(tokens).decode(errors="replace")


