"""DiffusionGemma on MLX: a causal encoder fills a key-value cache, a bidirectional decoder denoises a canvas."""
