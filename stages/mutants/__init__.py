"""Tables of planted bugs, a model's in one or several files. Nothing here but declarations."""
