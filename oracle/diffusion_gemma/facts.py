"""What the reference says without computing: its configuration, its parameters, its text."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .reference import OracleError, Reference

Trace = dict[str, np.ndarray]
At = Mapping[str, Any]


def as_bytes(text: str) -> np.ndarray:
    """Text as the harness holds it: uint8 UTF-8."""
    return np.frombuffer(text.encode(), np.uint8).copy()


def as_json(value: Any) -> np.ndarray:
    """A JSON value as uint8 UTF-8."""
    return as_bytes(json.dumps(value, ensure_ascii=False))


def rows(texts: list[bytes], width: int) -> np.ndarray:
    """Byte strings as a zero-padded uint8 matrix."""
    if longest := max((text for text in texts if len(text) > width), key=len, default=b""):
        raise OracleError(f"{longest!r} is longer than the {width} bytes that a row holds")
    return np.frombuffer(b"".join(text.ljust(width, b"\0") for text in texts), np.uint8).reshape(len(texts), width)


def config(reference: Reference, at: At) -> Trace:
    """Every field of the parsed configuration, and the quantization map as the loader read it."""
    fields = dict(_flat(dataclasses.asdict(reference.model.config)))
    fields |= dict(_flat(reference.model._optiq_config.get("quantization") or {}, "quantization."))  # noqa: SLF001
    names = sorted(fields)
    values = [json.dumps(fields[name], sort_keys=True).encode() for name in names]
    return {"names": rows([name.encode() for name in names], 128), "values": rows(values, 32)}


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{prefix}{key}.")
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            yield from _flat(inner, f"{prefix}{i}.")
    else:
        yield prefix.removesuffix("."), value


def weights(reference: Reference, at: At) -> Trace:
    """Name and digest of every parameter the reference holds, at the checkpoint's own dtype."""
    names = sorted(reference.digests)
    digests = np.frombuffer(b"".join(bytes.fromhex(reference.digests[name]) for name in names), np.uint8)
    return {"names": rows([name.encode() for name in names], 96), "digests": digests.reshape(len(names), 32)}


def tokenize(reference: Reference, at: At, *, text: np.ndarray) -> Trace:
    """Ids of a text, special tokens added."""
    ids = reference.tokenizer.encode(text.tobytes().decode(), add_special_tokens=True)
    return {"ids": np.array(ids, np.int32)}


def chat_template(reference: Reference, at: At, *, messages: np.ndarray) -> Trace:
    """A conversation as the prompt text that asks for the model's turn."""
    text = reference.tokenizer.apply_chat_template(
        json.loads(messages.tobytes()), tokenize=False, add_generation_prompt=True
    )
    return {"text": as_bytes(text)}
