"""The system under test: ports of published models to MLX."""
