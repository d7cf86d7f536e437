@torch.no_grad()
def predict(path):
    """The scores of the classes, before the softmax."""
    return model(sample(path))[0]


classes = [config["id2label"][str(i)] for i in range(config["num_labels"])]
for path in sys.argv[1:]:
    scores = predict(path)
    best = int(scores.argmax())
    print(f"{path}: {classes[best]} ({scores.softmax(0)[best]:.1%})")
