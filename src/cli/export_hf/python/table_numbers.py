@torch.no_grad()
def predict(row):
    """What the model predicts, in the units of the target's column."""
    return model(sample(row))[0].double() * encoding["target"]["std"] + encoding["target"]["mean"]


for path in sys.argv[1:]:
    for row in rows(path):
        print(*predict(row).tolist())
