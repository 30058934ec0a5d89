"""MetaDiffusion in PyTorch, written here from its seed: the seed's behaviour, its quirks included."""

PACKAGE = "torch"
FRAMEWORK = "torch"
