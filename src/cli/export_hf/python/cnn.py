class Cnn(nn.Module):
    """3x3 convolutions, each with ReLU and 2x2 max pooling, then a hidden layer and the head."""

    def __init__(self):
        super().__init__()
        layers, (inputs, height, width) = [], IMAGE
        for outputs in CHANNELS:
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            inputs, height, width = outputs, height // 2, width // 2
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(inputs * height * width, HIDDEN),
            nn.ReLU(),
            nn.Dropout(DROPOUT),
            nn.Linear(HIDDEN, OUTPUTS),
        )

    def forward(self, x):
        return self.classifier(self.features(x))


model = Cnn()
