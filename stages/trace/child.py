"""The oracle's operations, logged in a process of their own: `python -m stages.trace.child`, and what reads its answer.

No process ever holds both sides. What crosses is a file of arrays: every operation's output, and the rest as JSON.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from goldens.store import Golden
from stages import loose, sides
from stages.asked import table_of
from stages.diff.members import answers
from stages.diff.options import fractions
from stages.errors import HarnessError
from stages.gates import Tensor
from stages.places import ROOT

from . import torchlog
from .frames import watching
from .oplog import Op, Operand, OpLog, recording
from .sites import Site
from .whence import keys

Trace = dict[str, Tensor]
FOLDERS = ("oracle/", "optiq/", "mlx_lm/")  # whose calls are logged: the oracle and what it is made of


@dataclass(frozen=True)
class Asked:
    """One occurrence of one golden: what the child is told.

    Attributes:
        checkpoint: Directory that the oracle loads.
        golden: File that holds the occurrence's inputs.
    """

    model: str
    checkpoint: str
    compute: str
    golden: str
    stage: str
    occurrence: str


def oracle_log(asked: Asked, logs: Path | None = None) -> tuple[OpLog, Trace]:
    """The oracle's operations on a golden's inputs, and what its cut gave.

    Where `logs` is a folder, the answer is looked for and kept there.

    Raises:
        HarnessError: the oracle is not installed here, or its cut raises.
    """
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "log.npz"
        kept = logs and logs / f"{hashlib.sha256(json.dumps(asdict(asked)).encode()).hexdigest()[:20]}.npz"
        if kept and kept.exists():
            return read(kept)
        child = subprocess.run(  # noqa: S603 -- this interpreter, on a module of its own
            [sys.executable, "-m", "stages.trace.child", json.dumps(asdict(asked)), str(out)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if child.returncode:
            last = (child.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise HarnessError(
                f"the oracle of {asked.model} cannot be run here on {asked.stage}[{asked.occurrence}]: "
                f"{last.removeprefix('stages.errors.HarnessError: ')}"
            )
        if kept:
            shutil.copyfile(out, kept.with_suffix(".new"))
            kept.with_suffix(".new").replace(kept)
        return read(out)


def answer(asked: Asked, out: Path) -> None:
    """Run the oracle's cut under a log and write both to `out`."""
    cuts = sides.cuts("oracle", asked.model)
    model = cuts.load(Path(asked.checkpoint), asked.compute)
    stage = table_of(asked.model)[asked.stage]
    with Golden.open(Path(asked.golden)) as golden:
        record = golden.read(asked.stage, asked.occurrence)
    package = sides.package("oracle", asked.model).PACKAGE
    watched = torchlog.recording(sys.modules[package]) if package == "torch" else recording()
    with watching(*FOLDERS) as watch, watched as log:
        outs = sides.call(cuts, model, stage, asked.occurrence, record.ins)
    log.keys, log.asked, log.fractions = keys(watch), answers(watch), fractions(watch)
    write(out, log, outs)


def write(path: Path, log: OpLog, outs: Trace) -> None:
    """A log and a cut's outputs as one file of arrays."""
    tensors = {f"op{i}": op.out for i, op in enumerate(log.ops)}
    tensors |= {f"leaf:{found}": tensor for found, tensor in log.leaves.items()}
    tensors |= {f"out:{name}": tensor for name, tensor in outs.items()}
    told = [
        {
            "name": op.name,
            "operands": [asdict(one) for one in op.operands],
            "fixed": op.fixed,
            "digest": op.digest,
            "sites": [asdict(site) for site in op.sites],
        }
        for op in log.ops
    ]
    python = {"keys": sorted(log.keys), "asked": sorted(log.asked), "fractions": log.fractions}
    loose.save(path, tensors, {"ops": told, **python})


def read(path: Path) -> tuple[OpLog, Trace]:
    """What `write` wrote; operations that were read cannot be done again."""
    tensors, told = loose.load(path)
    ops = [
        Op(
            one["name"],
            tuple(Operand(o["op"], o["digest"], tuple(o["shape"])) for o in one["operands"]),
            one["fixed"],
            tensors[f"op{i}"],
            one["digest"],
            tuple(Site(**site) for site in one["sites"]),
        )
        for i, one in enumerate(told["ops"])
    ]
    leaves, outs = (
        {name.removeprefix(kind): tensor for name, tensor in tensors.items() if name.startswith(kind)}
        for kind in ("leaf:", "out:")
    )
    asked = {(number, answer) for number, answer in told["asked"]}
    made = {text: tuple(numbers) for text, numbers in told["fractions"].items()}
    return OpLog(ops, leaves, keys=set(told["keys"]), asked=asked, fractions=made), outs


if __name__ == "__main__":
    answer(Asked(**json.loads(sys.argv[1])), Path(sys.argv[2]))
