"""The quantization map of `config.json`: how each module's weight is packed, stated and never guessed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from port.errors import ConfigError, fetch_again

from .validate import section

_BITS = {2, 3, 4, 5, 6, 8}
_GROUPS = {16, 32, 64, 128}
_MODES = {"affine", "mxfp4", "mxfp8", "nvfp4"}
_DEFAULTS = {"bits", "group_size", "mode"}  # keys of the map that are settings; all others are modules


@dataclass(frozen=True)
class Quantization:
    """How one module's weight is packed: `bits` an element, `group_size` elements a scale, and the code's `mode`."""

    bits: int
    group_size: int
    mode: str


def packing(quantization: dict[str, Any] | None, path: str, *, scaled: bool) -> Quantization | None:
    """What the map says of one module.

    Args:
        quantization: the map, or None.
        path: the module's full name in the checkpoint.
        scaled: whether the checkpoint has scales for it.

    Returns:
        the module's own entry; without one, the map's defaults if it has scales; None where it is not packed.
    """
    if quantization is None:
        return None
    entry = quantization.get(path, scaled)
    if isinstance(entry, bool):
        if not entry:
            return None
        entry = quantization
    return Quantization(entry["bits"], entry["group_size"], entry.get("mode", "affine"))


def read_map(raw: dict[str, Any], path: Path) -> dict[str, Any] | None:
    """The map as written, whole: bits and group size stated wherever an entry stands.

    Args:
        raw: the parsed `config.json`.
        path: where it lies, for messages.

    Raises:
        ConfigError: an entry is incomplete or unknown to MLX, or the map's two spellings differ.
    """

    def refuse(found: str, expected: str) -> ConfigError:
        return ConfigError(str(path), found=found, expected=expected, mend=fetch_again(path.parent, path.name))

    quantization, twin = raw.get("quantization"), raw.get("quantization_config")
    if quantization is None:
        if twin is not None:
            raise refuse("quantization_config stands alone", "an MLX map under quantization")
        return None
    if twin is not None and twin != quantization:
        raise refuse("quantization and quantization_config differ", "one map, or two equal ones")
    modules = {k: v for k, v in section(quantization, "quantization", path).items() if k not in _DEFAULTS}
    for name, given in {"quantization": quantization, **modules}.items():
        if isinstance(given, bool):
            continue
        entry = section(given, f"quantization.{name}", path)
        bits, group, mode = entry.get("bits"), entry.get("group_size"), entry.get("mode", "affine")
        if bits not in _BITS or group not in _GROUPS or mode not in _MODES:
            raise refuse(
                f"{name} has bits {bits}, group_size {group}, mode {mode}",
                f"bits of {_listed(_BITS)}, group_size of {_listed(_GROUPS)}, mode of {_listed(_MODES)}",
            )
    return {**quantization}


def _listed(values: set[Any]) -> str:
    return ", ".join(str(value) for value in sorted(values))
