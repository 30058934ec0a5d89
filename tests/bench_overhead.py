"""What the harness costs on top of the two models' own arithmetic: run with `nox -s bench`.

One round is a full run of the text forward: every case recorded from the oracle, then judged from an empty ledger.
Interleaved with it, the same calls alone: the oracle's ordinary and wide runs and its cuts' replays, the port's
ordinary run and its forced cuts, with no taps, gates, files, hashes or ledger; inputs are read from the goldens before.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from goldens import writer
from goldens.store import Golden, Record
from port.diffusion_gemma.conditioning import confident_probabilities, entropic_probabilities, soft_from_table
from stages import run as runs
from stages import sides
from stages.cases import plan
from stages.cli import table_of
from stages.dump import Recorder, wanted
from stages.gates import FLOATS
from stages.places import COMMITTED, checkpoint_path, golden_path
from stages.run import Run
from stages.shelf import Question
from stages.spec import Case
from stages.text_cases import cases as text_cases

TABLE = table_of("diffusion_gemma")
AIM = 1.25
TEXT = tuple(case.name for case in text_cases)
ROUNDS = 2


def test_full_run_against_compute_alone(benchmark, tmp_path: Path, monkeypatch, capsys) -> None:
    recorder = Recorder(TABLE)
    ports: dict[tuple[Path, str], Any] = {}
    todo = list(_all(recorder, ports))
    alone: list[float] = []
    oracle: list[float] = []

    def compute_alone() -> None:
        start = time.perf_counter()
        for work in todo:
            work.oracle()
        oracle.append(time.perf_counter() - start)
        for work in todo:
            work.port()
        alone.append(time.perf_counter() - start)

    # The models are loaded on both sides of the ratio: loading is not what is measured.
    monkeypatch.setattr(Run, "port", lambda run, where, compute: _known(run, ports, where, compute))
    monkeypatch.setattr(runs, "CACHE", tmp_path)
    # Both sides share this one process, so that nothing but their work is timed; what is recorded here is thrown away.
    monkeypatch.setattr(writer, "_refuse_port", lambda _path: None)

    def full_run() -> None:
        for case, compute in wanted(TABLE, TEXT, ()):
            recorder.record(case, compute, tmp_path, full=False)
        answer = Run(TABLE, Question(cases=TEXT, goldens=tmp_path, again=True)).answer()
        assert {row.status.value for row in answer.verdicts} == {"PASS"}

    benchmark.pedantic(full_run, setup=compute_alone, rounds=ROUNDS, iterations=1)
    full = benchmark.stats.stats.data
    ratios = [a / b for a, b in zip(full, alone, strict=True)]
    row = {"full_s": min(full), "compute_s": min(alone), "oracle_s": min(oracle), "ratio": min(full) / min(alone)}
    benchmark.extra_info.update(row | {"aim": AIM, "ratios": ratios})
    with capsys.disabled():
        heads = ("full run", "compute", "of it oracle", "ratio", "aim")
        cells = (
            f"{row['full_s']:.2f} s",
            f"{row['compute_s']:.2f} s",
            f"{row['oracle_s']:.2f} s",
            f"{row['ratio']:.3f}",
        )
        for line in (heads, (*cells, str(AIM))):
            print("".join(f"{cell:>14}" for cell in line))
        print(json.dumps(benchmark.extra_info))


def _known(run: Run, ports: dict[tuple[Path, str], Any], where: Path, compute: str) -> Any:
    run._base[where, compute] = set()
    return ports[where, compute]


def _all(recorder: Recorder, ports: dict[tuple[Path, str], Any]) -> Iterator["_Work"]:
    cuts = sides.cuts("port", TABLE.model)
    for case, compute in wanted(TABLE, TEXT, ()):
        checkpoint = checkpoint_path(case.checkpoint)
        if (checkpoint, compute) not in ports:
            ports[checkpoint, compute] = cuts.load(checkpoint, compute)
        yield _Work(recorder, case, compute, checkpoint, ports[checkpoint, compute])


class _Work:
    """The arithmetic of one case."""

    def __init__(self, recorder: Recorder, case: Case, compute: str, checkpoint: Path, port: Any) -> None:
        self.model = recorder.model(checkpoint, compute)
        self.wide = recorder.model(checkpoint, compute, "float64")
        self.cuts, self.port_cuts, self.port_model = recorder.cuts, sides.cuts("port", TABLE.model), port
        self.plan = plan(case, json.loads((checkpoint / "config.json").read_text()))
        with Golden.open(golden_path(COMMITTED, TABLE.model, case.name, compute)) as golden:
            self.records = [
                (stage, at, golden.read(stage, at)) for stage in golden.stages() for at in golden.occurrences(stage)
            ]

    def oracle(self) -> None:
        """Ordinary run, replays, wide replays, wide run."""
        self._oracle_run(self.model)
        for stage, at, record in self.records:
            sides.call(self.cuts, self.model, TABLE[stage], at, record.ins)
        for stage, at, record in self.records:
            if record.noise:
                self._wide(stage, at, record)
        self._oracle_run(self.wide)

    def port(self) -> None:
        """Ordinary run and forced cuts."""
        self._port_run()
        for stage, at, record in self.records:
            sides.call(self.port_cuts, self.port_model, TABLE[stage], at, record.ins)

    def _wide(self, stage: str, at: str, record: Record) -> None:
        ins = {name: x.astype(np.float64) if x.dtype in FLOATS else x for name, x in record.ins.items()}
        sides.call(self.cuts, self.wide, TABLE[stage], at, ins)

    def _passes(self, encode: Callable[[np.ndarray], Any], denoise: Callable[..., mx.array]) -> None:
        if self.plan["ids"] is None:
            return
        stops = np.cumsum(self.plan["chunks"] or [])[:-1].astype(int)
        for part in np.split(self.plan["ids"], stops, axis=1):
            mx.eval(encode(part))
        for block, canvas in enumerate(self.plan["canvases"]):
            if block:
                mx.eval(encode(self.plan["canvases"][block - 1]["finished"]))
            logits = None
            for step in canvas["steps"]:
                logits = denoise(step["ids"], step["signal"], logits)
                mx.eval(logits)

    def _oracle_run(self, reference: Any) -> None:
        model, caches = reference.model, reference.model.make_cache()
        padding = self.plan["padding"]
        first = [padding]

        def encode(ids: np.ndarray) -> mx.array:
            mask = first.pop() if first else None
            h, _ = model.model.encoder(
                mx.array(ids), attention_mask=None if mask is None else mx.array(mask), cache=caches
            )
            return h

        def denoise(ids: np.ndarray, signal: str, logits: mx.array | None) -> mx.array:
            soft = None
            if signal in {"confidence", "entropy"}:
                soft = self.cuts.engine_soft(model.model.decoder, signal, logits)
            attend = None if padding is None else mx.array(np.concatenate([padding, np.ones_like(ids, bool)], -1))
            result = model(
                canvas_ids=mx.array(ids),
                cache=caches,
                self_conditioning_logits=logits if signal == "logits" else None,
                self_conditioning_embeddings=soft,
                decoder_attention_mask=attend,
            )
            return result.logits

        self._passes(encode, denoise)

    def _port_run(self) -> None:
        model, caches = self.port_model, self.port_model.new_cache()
        padding = None if self.plan["padding"] is None else mx.array(self.plan["padding"])
        first = [padding]

        def encode(ids: np.ndarray) -> mx.array:
            return model.encode(mx.array(ids), caches, first.pop() if first else None)

        def denoise(ids: np.ndarray, signal: str, logits: mx.array | None) -> mx.array:
            soft = None
            if signal == "logits":
                soft = model.signal(logits)
            elif signal != "none":
                formula = {"confidence": confident_probabilities, "entropy": entropic_probabilities}[signal]
                soft = soft_from_table(formula(logits), model.embed_tokens.table.dense(), model.embed_tokens.scale)
            return model.logits(model.decode(mx.array(ids), caches, soft, padding))

        self._passes(encode, denoise)
