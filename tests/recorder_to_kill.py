"""Records goldens without end in a child, kills it, and checks what it left; run by test_store_kill.py.

    python recorder_to_kill.py FOLDER KILLS

Prints one JSON object: how many goldens were found whole, how many recordings a kill cut short, and every golden
that was neither whole nor absent. Forks, so it must stay a process of its own without threads.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from goldens.store import GoldenError, verify, writing

NAMES = ("a.h5", "b.h5", "c.h5")


def record(folder: Path, turn: int) -> None:
    rng = np.random.default_rng(turn)
    with writing(folder / NAMES[turn % len(NAMES)], {"turn": turn}) as golden:
        for layer in range(12):
            x = rng.integers(0, 1 << 16, (16, 64), np.uint16)
            golden.put("moe", f"encoder/layer={layer}", {"x": x, "small": x[0, :3]}, {"h": x + 1})


def forever(folder: Path, turn: int) -> None:
    while True:
        record(folder, turn)
        turn += 1


def main(folder: Path, kills: int) -> None:
    rng = random.Random(0)
    begun = time.perf_counter()
    record(folder, 0)
    longest = 4 * (time.perf_counter() - begun)
    whole, cut_short, broken = 0, 0, []
    for turn in range(kills):
        child = os.fork()
        if child == 0:
            forever(folder, turn)
        time.sleep(rng.uniform(0, longest))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        cut_short += any(folder.glob(".*.recording"))
        for golden in folder.glob("*.h5"):
            try:
                verify(golden)
                whole += 1
            except GoldenError as error:
                broken.append(str(error))
    record(folder, 0)
    left = sorted(path.name for path in folder.iterdir() if path.suffix != ".h5")
    print(json.dumps({"whole": whole, "cut_short": cut_short, "broken": broken, "left": left}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
