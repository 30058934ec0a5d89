"""MetaDiffusion: a Llama turned into a language model that unmasks, in MLX."""
