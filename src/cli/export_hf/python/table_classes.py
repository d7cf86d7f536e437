@torch.no_grad()
def predict(row):
    """The scores of the classes, before the softmax."""
    return model(sample(row))[0]


classes = [config["id2label"][str(i)] for i in range(config["num_labels"])]
for path in sys.argv[1:]:
    for row in rows(path):
        scores = predict(row)
        best = int(scores.argmax())
        print(f"{classes[best]} ({scores.softmax(0)[best]:.1%})")
