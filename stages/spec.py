"""The grammar of a table: what a stage takes and gives, how close is close enough, and which cases exercise it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .gates import Exact, Gate

Axes = str
LATER = {"later": True}  # fields of a case that older recordings do not know
Shapes = Mapping[str, tuple[str, tuple[int, ...]]]


@dataclass(frozen=True)
class Out:
    """One tensor that a stage gives.

    Attributes:
        axes: Names of its axes, blank separated: "B T D". A table of named rows is "P *".
        exact: The gate where this machine's numeric backend is the golden's.
        portable: The gate elsewhere.
        label: Another output whose rows name the first axis of this one.
        free: The gate elsewhere of what an ordinary run brings, with the errors of everything before; None where it is
            `portable` too.
    """

    axes: Axes
    portable: Gate
    exact: Gate = field(default_factory=Exact)
    label: str = ""
    free: Gate | None = None

    def gate(self, tier: str, mode: str = "forced") -> Gate:
        """The gate in force in `tier` ("exact" or "portable") and `mode` ("forced" or "free")."""
        if tier == "exact":
            return self.exact
        return self.free if mode == "free" and self.free is not None else self.portable


@dataclass(frozen=True)
class Stage:
    """One row: a pair of callables named alike on both sides, and their border.

    A name that ends in ".*" stands for one tensor a layer: `keys.*` is `keys.0`, `keys.1`, ...
    """

    name: str
    takes: dict[str, Axes]
    gives: dict[str, Out]
    after: tuple[str, ...] = ()

    def out(self, tensor: str) -> Out | None:
        """The declaration of a tensor that was given, or None where the table knows none of that name."""
        return self.gives.get(family(tensor))

    def unlike(self, ins: Shapes, outs: Shapes) -> str:
        """What these tensors (dtype and shape by name) have otherwise than this row; "" where nothing is.

        A tensor of size 0 stands for one that is absent, and may have any number of axes.
        """
        for verb, row, found in (
            ("takes", self.takes, ins),
            ("gives", {n: o.axes for n, o in self.gives.items()}, outs),
        ):
            families = {family(name) for name in found}
            if families != row.keys():
                return f"{verb} {sorted(families)}, the table says {sorted(row)}"
            for name, (_, shape) in found.items():
                axes = row[family(name)].split()
                if len(axes) != len(shape) and 0 not in shape:
                    return f"{verb} {name} with {len(shape)} axes, the table says {axes}"
        return ""


def family(name: str) -> str:
    """`keys.*` for `keys.3`; a name without a dot is its own."""
    return f"{name.rpartition('.')[0]}.*" if "." in name else name


@dataclass(frozen=True)
class Generation:
    """One run of the engine from a seed.

    Attributes:
        prompt: Text, the start token not included; None where `tokens` counts drawn ids.
        options: (name, value) pairs of the engine's knobs; values are JSON.
        seed: Of every draw.
        tokens: Length of a drawn prompt.
    """

    prompt: str | None
    options: tuple[tuple[str, Any], ...] = ()
    seed: int = 0
    tokens: int = 0


@dataclass(frozen=True)
class Case:
    """One scenario, recorded once for each compute dtype.

    Attributes:
        name: What the command line calls it.
        checkpoint: "nano" or "nano-inline".
        tokens: Prompt length, padding included; 0 runs no forward pass.
        why: What only this case can see.
        canvas: Canvas length.
        blocks: The signals of each canvas' passes, first pass first. A block after the first extends the cache.
        padding: Left padding within `tokens`.
        chunks: Sizes of prefill chunks, or () for one pass.
        assignments: Direct calls of the experts with this many (token, expert) pairs.
        texts: Texts to tokenize.
        chats: Conversations to render, as (role, content) pairs.
        pictures: Drawn pictures that the prompt shows, as (name in `pictures.py`, budget of soft tokens); the prompt is
            then made of them and the question, and `tokens` is 0.
        question: What is asked about them; "" where it is the generations that ask.
        overlays: Direct calls of the masks of pictures, as (kinds of tokens, tokens before them, left padding); kinds
            are spelled t text, i image, v video.
        seed: Of every draw that is an input.
        keep: Layers whose inner stages a committed golden holds; () keeps all.
        leave: Stages that a committed golden leaves to other cases.
        computes: Compute dtypes it is recorded in.
        generations: Runs of the engine.
        steps: Numbers of the denoising steps whose stages a committed golden holds; () keeps all.
        made: Whether it judges the engine's decisions on hand-made inputs, exactly at their thresholds.
        ids: The prompt itself, padding included, in place of a drawn one; `tokens` then only says how many draws are
            made before those of the canvases.
    """

    name: str
    why: str
    checkpoint: str = "nano"
    tokens: int = 0
    canvas: int = 16
    blocks: tuple[tuple[str, ...], ...] = ()
    padding: int = 0
    chunks: tuple[int, ...] = ()
    assignments: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()
    chats: tuple[tuple[tuple[str, str], ...], ...] = ()
    pictures: tuple[tuple[str, int], ...] = field(default=(), metadata=LATER)
    question: str = field(default="", metadata=LATER)
    overlays: tuple[tuple[str, int, int], ...] = field(default=(), metadata=LATER)
    seed: int = 0
    keep: tuple[int, ...] = ()
    leave: tuple[str, ...] = ()
    computes: tuple[str, ...] = ("bfloat16", "float32")
    generations: tuple[Generation, ...] = field(default=(), metadata=LATER)
    steps: tuple[int, ...] = field(default=(), metadata=LATER)
    made: bool = field(default=False, metadata=LATER)
    ids: tuple[int, ...] = field(default=(), metadata=LATER)

    def facts(self) -> dict[str, Any]:
        """What a manifest says of the case; a field that came later is left out where it says nothing."""
        usual = {one.name: one.default for one in fields(self) if one.metadata == LATER}
        return {name: value for name, value in asdict(self).items() if name not in usual or value != usual[name]}


@dataclass(frozen=True)
class Table:
    """A model's stages in unlock order, and its cases; `exact` where its oracle computes with the port's framework.

    Raises:
        ValueError: a stage waits for one that does not stand before it, or a name occurs twice.
    """

    model: str
    stages: tuple[Stage, ...]
    cases: tuple[Case, ...]
    exact: bool = True

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for stage in self.stages:
            if stage.name in seen:
                raise ValueError(f"stage {stage.name!r} stands twice in the table of {self.model}")
            if late := [name for name in stage.after if name not in seen]:
                raise ValueError(f"stage {stage.name!r} waits for {late[0]!r}, which does not stand before it")
            seen.add(stage.name)
        names = [case.name for case in self.cases]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"case {min(twice)!r} stands twice in the table of {self.model}")

    def __getitem__(self, name: str) -> Stage:
        return next(stage for stage in self.stages if stage.name == name)

    def closure(self, names: list[str]) -> list[str]:
        """These stages and everything they wait for, in table order."""
        wanted = set(names)
        for stage in reversed(self.stages):
            if stage.name in wanted:
                wanted.update(stage.after)
        return [stage.name for stage in self.stages if stage.name in wanted]
