@torch.no_grad()
def predict(path):
    """What the model predicts, in the units of its target."""
    return model(sample(path))[0].double() * TARGET_STD + TARGET_MEAN


for path in sys.argv[1:]:
    print(f"{path}: {predict(path).item()}")
