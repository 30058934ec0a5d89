"""Where the nodes of the stage graph stand: layers from top to bottom, each stage below all it comes after.

The usual four steps, each in its plainest form: rank by longest path, drop edges that a longer path implies,
carry long edges through the layers between on invisible nodes, and order each layer by the mean place of its
neighbours (barycentre) to keep crossings few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

NODE_HEIGHT, GAP_X, GAP_Y, THROUGH, CHARACTER, PADDING = 26, 14, 30, 10, 7.3, 18
SWEEPS = 6


@dataclass(frozen=True, slots=True)
class Node:
    """A stage: top left corner, size (pixels) and name."""

    name: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes, and edges as SVG paths with the names of their ends, in pixels."""

    width: int
    height: int
    nodes: tuple[Node, ...]
    edges: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class _Slot:
    """A place in a layer: a stage, or (where `edge` is given) a long edge passing through."""

    name: str
    edge: tuple[str, str] | None = None


def layout(after: Mapping[str, Sequence[str]]) -> Graph:
    """The layout of stages, each mapped to those it comes after; names that are no key are ignored.

    Raises:
        ValueError: stages come after one another in a circle.
    """
    parents = {name: [p for p in dict.fromkeys(before) if p in after] for name, before in after.items()}
    ranks = _ranks(parents)
    edges = [(p, name) for name, before in parents.items() for p in before if not _implied(p, name, parents)]
    layers: list[list[_Slot]] = [[] for _ in range(max(ranks.values(), default=-1) + 1)]
    for name in parents:
        layers[ranks[name]].append(_Slot(name))
    chains: dict[tuple[str, str], list[_Slot]] = {}
    for edge in edges:
        between = range(ranks[edge[0]] + 1, ranks[edge[1]])
        through = [_Slot(f"{edge[0]} > {edge[1]}", edge) for _ in between]
        for rank, slot in zip(between, through, strict=True):
            layers[rank].append(slot)
        chains[edge] = [_Slot(edge[0]), *through, _Slot(edge[1])]
    _order(layers, ranks, chains)
    width = max((_width(layer) for layer in layers), default=0.0)
    centres: dict[tuple[int, _Slot], float] = {}
    nodes = []
    for rank, layer in enumerate(layers):
        x = (width - _width(layer)) / 2
        for slot in layer:
            size = _size(slot)
            centres[rank, slot] = x + size / 2
            if slot.edge is None:
                nodes.append(Node(slot.name, round(x, 1), rank * (NODE_HEIGHT + GAP_Y), round(size, 1), NODE_HEIGHT))
            x += size + GAP_X
    drawn = tuple((*edge, _path(chain, ranks[edge[0]], centres)) for edge, chain in chains.items())
    height = max(0, len(layers) * (NODE_HEIGHT + GAP_Y) - GAP_Y)
    return Graph(round(width), height, tuple(nodes), drawn)


def _ranks(parents: Mapping[str, Sequence[str]]) -> dict[str, int]:
    ranks: dict[str, int] = {}
    waiting = list(parents)
    while waiting:
        ready = [name for name in waiting if all(p in ranks for p in parents[name])]
        if not ready:
            raise ValueError(f"stages come after one another in a circle: {', '.join(waiting)}")
        for name in ready:
            ranks[name] = max((ranks[p] + 1 for p in parents[name]), default=0)
        waiting = [name for name in waiting if name not in ranks]
    return ranks


def _implied(parent: str, child: str, parents: Mapping[str, Sequence[str]]) -> bool:
    """Whether `parent` is also reached from another parent of `child`."""
    seen: set[str] = set()
    stack = [p for p in parents[child] if p != parent]
    while stack:
        name = stack.pop()
        if name == parent:
            return True
        if name not in seen:
            seen.add(name)
            stack += parents[name]
    return False


def _order(layers: list[list[_Slot]], ranks: Mapping[str, int], chains: Mapping[tuple[str, str], list[_Slot]]) -> None:
    above: dict[tuple[int, _Slot], list[_Slot]] = {}
    below: dict[tuple[int, _Slot], list[_Slot]] = {}
    for edge, chain in chains.items():
        for step, (upper, lower) in enumerate(pairwise(chain)):
            rank = ranks[edge[0]] + step
            below.setdefault((rank, upper), []).append(lower)
            above.setdefault((rank + 1, lower), []).append(upper)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        neighbours, order = (above, range(1, len(layers))) if down else (below, range(len(layers) - 2, -1, -1))
        for rank in order:
            fixed = layers[rank - 1 if down else rank + 1]
            place = {slot: (n + 0.5) / len(fixed) for n, slot in enumerate(fixed)}
            here = {slot: (n + 0.5) / len(layers[rank]) for n, slot in enumerate(layers[rank])}
            for slot in layers[rank]:
                found = [place[other] for other in neighbours.get((rank, slot), ())]
                here[slot] = sum(found) / len(found) if found else here[slot]
            layers[rank].sort(key=here.__getitem__)


def _size(slot: _Slot) -> float:
    return THROUGH if slot.edge else len(slot.name) * CHARACTER + PADDING


def _width(layer: Sequence[_Slot]) -> float:
    return sum(map(_size, layer)) + GAP_X * max(0, len(layer) - 1)


def _path(chain: Sequence[_Slot], rank: int, centres: Mapping[tuple[int, _Slot], float]) -> str:
    """Down through the gaps in S-curves, straight through the layers between."""
    pitch = NODE_HEIGHT + GAP_Y
    text = f"M{centres[rank, chain[0]]:.1f} {rank * pitch + NODE_HEIGHT}"
    for step, slot in enumerate(chain[1:], start=rank + 1):
        x, y = centres[step, slot], step * pitch
        before = centres[step - 1, chain[step - 1 - rank]]
        text += f"C{before:.1f} {y - GAP_Y / 2:g} {x:.1f} {y - GAP_Y / 2:g} {x:.1f} {y}"
        text += f"V{y + NODE_HEIGHT}" if slot.edge else ""
    return text
