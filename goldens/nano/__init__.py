"""The nano checkpoint: every habit of the published layout at two thousandths of its size.

`python -m goldens.nano [--variant sidecar|inline] [OUT]` rebuilds it byte for byte from `SEED` and the two
texts beside this file. The sidecar variant is committed in `checkpoint/`; the inline one is made on demand
and held to the digest in `inline.sha256`.
"""
