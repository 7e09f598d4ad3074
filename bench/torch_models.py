"""Networks for comparisons where torchvision is not installed, and a GPT: make(name), and batch(name, ...) of made-up
data."""
import torch

WORDS, LENGTH = 8192, 128  # of the GPT


class Basic(torch.nn.Module):
    """Two convolutions and a shortcut, of "Deep Residual Learning for Image Recognition", He et al., 2015."""

    def __init__(self, before, planes, stride):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(before, planes, 3, stride, 1, bias=False)
        self.conv2 = torch.nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = torch.nn.BatchNorm2d(planes), torch.nn.BatchNorm2d(planes)
        self.shortcut = torch.nn.Identity() if before == planes else torch.nn.Sequential(
            torch.nn.Conv2d(before, planes, 1, stride, bias=False), torch.nn.BatchNorm2d(planes))

    def forward(self, x):
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def resnet18():
    blocks = []
    for before, planes, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        blocks += [Basic(before, planes, stride), Basic(planes, planes, 1)]
    return torch.nn.Sequential(torch.nn.Conv2d(3, 64, 7, 2, 3, bias=False), torch.nn.BatchNorm2d(64),
                               torch.nn.ReLU(inplace=True), torch.nn.MaxPool2d(3, 2, 1), *blocks,
                               torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(512, 1000))


class Vgg(torch.nn.Module):
    """Configuration A of "Very Deep Convolutional Networks for Large-Scale Image Recognition", Simonyan and Zisserman,
    2014: of 133 million parameters 124 million are those of three dense layers."""

    def __init__(self):
        super().__init__()
        layers, before = [], 3
        for planes in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):  # 0: pooling
            layers += ([torch.nn.Conv2d(before, planes, 3, padding=1), torch.nn.ReLU(inplace=True)] if planes else
                       [torch.nn.MaxPool2d(2)])
            before = planes or before
        self.features, self.pool = torch.nn.Sequential(*layers), torch.nn.AdaptiveAvgPool2d(7)
        dense = [torch.nn.Linear(512 * 7 * 7, 4096), torch.nn.Linear(4096, 4096)]
        self.classifier = torch.nn.Sequential(
            *(m for layer in dense for m in (layer, torch.nn.ReLU(inplace=True), torch.nn.Dropout())),
            torch.nn.Linear(4096, 1000))

    def forward(self, x):
        return self.classifier(self.pool(self.features(x)).flatten(1))


class Gpt(torch.nn.Module):
    """12 million parameters, of which two million are those of the embedding, tied to the last layer."""

    def __init__(self, width=256, heads=4, depth=12):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(WORDS, width), torch.nn.Embedding(LENGTH, width)
        self.blocks = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(depth))
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, WORDS, bias=False)
        self.head.weight = self.words.weight
        self.register_buffer("mask", torch.full((LENGTH, LENGTH), float("-inf")).triu(1))

    def forward(self, x):
        y = self.words(x) + self.places.weight
        for block in self.blocks:
            y = block(y, self.mask)
        return self.head(self.norm(y)).flatten(0, 1)


def make(name):
    if name == "gpt":
        return Gpt()
    try:
        import torchvision
    except ImportError:
        return {"resnet18": resnet18, "vgg11": Vgg}[name]()
    return getattr(torchvision.models, name)()


def batch(name, size, pixels):
    """Data from which something can be learned: coarse pictures of 100 classes under noise, words of which each depends on
    the one before."""
    if name == "gpt":
        words = torch.randint(WORDS, (size, LENGTH + 1))
        for i in range(1, LENGTH + 1):
            words[:, i] = (words[:, i - 1] * 5 + torch.randint(3, (size,))) % WORDS
        return words[:, :-1].contiguous(), words[:, 1:].flatten()
    classes = torch.randn(100, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    labels = torch.randint(100, (size,))
    pictures = torch.nn.functional.interpolate(classes[labels], size=(pixels, pixels))
    return pictures + torch.randn_like(pictures), labels
