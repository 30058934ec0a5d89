"""DiffusionGemma as mlx-optiq runs it."""
