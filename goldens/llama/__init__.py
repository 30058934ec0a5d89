"""Small Llamas, and a MetaDiffusion with nothing left at its starting value, made from a seed when they are needed.

They are built rather than committed: the bytes are the same on every platform, and take a few milliseconds.
"""
