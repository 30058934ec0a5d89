"""Memory that stays with the process between one array and the next."""

import ctypes
import sys

# <malloc.h> of glibc
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4


def keep() -> None:
    """Let the C library keep freed memory, for the rest of the process, instead of giving it back to the system.

    On a CPU MLX takes every array anew from the C library, which hands large ones back to the system when they are
    freed: the next has its pages mapped and cleared again, which is a quarter of a training step. Does nothing where
    the C library is not glibc, and is free to be called again.
    """
    if not sys.platform.startswith("linux"):
        return
    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):
        for option, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_TOP_PAD, 64 << 20)):
            set_option(option, value)
