"""DiffusionGemma as mlx-optiq runs it."""

PACKAGE = "mlx-optiq"
FRAMEWORK = "mlx"
