"""A demonstration: a small Llama learns a little English, is converted, and learns to unmask; beside one from scratch.

`python tests/demo_metadiffusion.py [FOLDER]` writes a text by a grammar, trains a Llama on it word by word, converts it
and trains what it became and an untrained twin as diffusion models, alike and for as many steps; each with and without
the shift. It prints what each then knows and writes, and ends with exit code 1 where the converted one is not clearly
better. Seeds are fixed; nothing is read but these two files.
"""

import dataclasses
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import numpy as np
from demo_grammar import LEXICON, SENTENCE, draw, is_right
from mlx import nn, optimizers
from mlx.utils import tree_flatten
from tokenizers import Tokenizer, models, pre_tokenizers

from port.metadiffusion import checkpoint, diffusion, unmask
from port.metadiffusion.convert import configure, convert, converted
from port.metadiffusion.lessons import lesson, read_text
from port.metadiffusion.memory import keep
from port.metadiffusion.model import BLOCKED, MetaDiffusion
from port.metadiffusion.train import Recipe, train, updating

SENTENCES, HELD_OUT = 20_000, 1_000
BUDGETS = (100, 200, 400)  # steps of unmasking after which it is asked what a model knows
RECIPE = Recipe(steps=BUDGETS[-1], batch=32, length=32, rate=2e-3, warmup=20)
LLAMA_STEPS, LLAMA_RATE, LLAMA_WARMUP = 1500, 2e-3, 50
SEEDS = (0, 1, 2)
ROWS, LONG, GIVEN = 64, 8, 3  # texts a model writes into, the words of a sentence, those given of one that is begun
HIDDEN = 0.2  # share of the words that are to be filled in, of texts that are not begun but whole
SHIFTED, SCRATCH = "converted, shift", ("scratch, shift", "scratch")
WAYS = {SHIFTED: ("taught", True), "converted": ("taught", False)} | {
    name: ("untaught", "shift" in name) for name in SCRATCH
}
MEASURES = ("loss", "begun", "distinct", "filled")
Found = dict[str, float]


def llama(folder: Path, seed: int) -> Path:
    """An untrained Llama with a tokenizer of words."""
    folder.mkdir()
    sizes = {"hidden_size": 96, "intermediate_size": 192, "num_hidden_layers": 3, "num_attention_heads": 4}
    shared = {"num_key_value_heads": 2, "vocab_size": 4 + len(LEXICON), "rms_norm_eps": 1e-5, "rope_theta": 10000.0}
    rest = {"max_position_embeddings": 128, "pad_token_id": 1, "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **sizes, **shared, **rest}))
    ids = {"<unk>": 0, "<pad>": 1, "<s>": 2, "</s>": 3} | {word: i for i, word in enumerate(LEXICON, 4)}
    made = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.save(str(folder / "tokenizer.json"))
    mx.random.seed(seed)
    save_llama(MetaDiffusion(configure(folder)), folder)
    return folder


def save_llama(model: MetaDiffusion, folder: Path) -> None:
    """What of the model is a Llama, under a Llama's names."""
    kept = {name: x for name, x in tree_flatten(model.parameters()) if "timestep" not in name}
    kept["embed_tokens.weight"] = kept["embed_tokens.weight"][:-1]
    mx.save_safetensors(str(folder / "model.safetensors"), {f"model.{name}": x for name, x in kept.items()})


def teach(folder: Path, ids: np.ndarray, seed: int) -> float:
    """Train the Llama to say the next word; returns its loss at the end."""
    model, tokens = converted(folder, mx.float32), RECIPE.length
    causal = mx.where(mx.tril(mx.ones((tokens, tokens), dtype=mx.bool_)), 0.0, BLOCKED)
    model.timestep_emb.freeze()
    for layer in model.layers:
        layer.timestep_residual.freeze()

    def scored(rows: mx.array) -> mx.array:
        # A Llama is this model looking back only, and never told a time.
        x, no_time = model.embed_tokens(rows[:, :-1]), mx.zeros((len(rows), model.config.timestep_emb_hidden))
        for layer in model.layers:
            x = layer(x, no_time, causal)
        return diffusion.cross_entropy(model.norm(x) @ model.embed_tokens.weight.T, rows[:, 1:]).mean()

    rise = optimizers.linear_schedule(LLAMA_RATE / LLAMA_WARMUP, LLAMA_RATE, LLAMA_WARMUP)
    fall = optimizers.cosine_decay(LLAMA_RATE, LLAMA_STEPS - LLAMA_WARMUP)
    optimizer = optimizers.AdamW(learning_rate=optimizers.join_schedules([rise, fall], [LLAMA_WARMUP]))
    gradient, update, losses = nn.value_and_grad(model, scored), updating(model, optimizer), []
    for step in range(LLAMA_STEPS):
        starts = np.random.Generator(np.random.PCG64([7, seed, step])).integers(0, len(ids) - tokens - 1, RECIPE.batch)
        loss, grads = gradient(mx.array(np.stack([ids[s : s + tokens + 1] for s in starts])))
        update(grads)
        mx.eval(model.parameters(), optimizer.state, loss)
        losses.append(loss.item())
    save_llama(model, folder)
    return float(np.mean(losses[-50:]))


def knows(folder: Path, held_out: Path) -> tuple[Found, str]:
    """What a model knows of a text that was not trained on, and what it writes.

    Returns:
        "loss" with half of that text masked; of its sentences, where each is given three words, how many are right once
        "begun" and gone on with, and how many of these endings are "distinct"; of those with a fifth of their words
        hidden, how many are right once "filled" in; and one of the texts that were begun.
    """
    model, words = checkpoint.load(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids, mask = read_text(held_out, folder, model.config, RECIPE.length), model.config.mask_token_id
    losses = []
    for step in range(8):
        batch = lesson(ids, step, seed=99, batch=32, length=RECIPE.length, low=0.5, high=0.5, mask=mask)
        logits = model.predict(batch.noisy, batch.t)
        losses.append(diffusion.flat_loss(logits, batch.labels, batch.masked, model.config.pad_token_id).item())

    rows = ids[: ROWS * RECIPE.length].reshape(ROWS, -1, LONG)  # every sentence has as many words
    begun = unmasked(model, np.where(np.arange(LONG) < GIVEN, rows, mask), words)
    hidden = np.random.Generator(np.random.PCG64(3)).random(rows.shape) < HIDDEN
    filled = unmasked(model, np.where(hidden, mask, rows), words)
    touched = [sentence for sentence, holes in zip(filled, hidden.reshape(-1, LONG), strict=True) if holes.any()]
    found = {
        "loss": float(np.mean(losses)),
        "begun": float(np.mean([is_right(sentence) for sentence in begun])),
        "distinct": len({tuple(sentence[GIVEN:]) for sentence in begun}) / len(begun),
        "filled": float(np.mean([is_right(sentence) for sentence in touched])),
    }
    return found, " ".join(word for sentence in begun[: RECIPE.length // LONG] for word in sentence)


def unmasked(model: MetaDiffusion, rows: np.ndarray, words: Tokenizer) -> list[list[str]]:
    """The sentences of texts [rows, sentences, words] with every mask replaced, a word of a text a pass."""
    start = mx.array(rows.reshape(len(rows), -1).astype(np.int32))
    done = np.array(unmask.generate(model, start, start.shape[1])).reshape(-1, LONG)
    return [[words.id_to_token(int(i)) for i in sentence] for sentence in done]


def once(folder: Path, seed: int, text: Path, held_out: Path) -> Iterator[tuple[str, int, Found, str]]:
    """One Llama and its untaught twin: what each way of starting knows after each budget."""
    folder.mkdir()
    sources = {"taught": llama(folder / "llama", seed), "untaught": llama(folder / "untaught", seed)}
    ids, begun = read_text(text, sources["taught"], configure(sources["taught"]), RECIPE.length), time.monotonic()
    loss = teach(sources["taught"], ids, seed)
    print(
        f"seed {seed}: the Llama's loss {loss:.3f}, {LLAMA_STEPS} steps, {time.monotonic() - begun:.0f} s", flush=True
    )
    for name, (source, shift) in WAYS.items():
        start = folder / f"start {name}"
        convert(sources[source], start, ar_shift=shift)
        for budget in BUDGETS:  # each goes on from the one before it
            recipe = dataclasses.replace(RECIPE, steps=budget, every=budget, seed=seed)
            found, written = knows(train(start, ids, recipe, folder / f"run {name}"), held_out)
            print(f"  {name:17}{budget:4} steps  {line([found])}  {time.monotonic() - begun:.0f} s", flush=True)
            yield name, budget, found, written


def line(found: list[Found]) -> str:
    """The measures of some runs: the mean, and from the least to the most."""
    parts = []
    for name in MEASURES:
        values, form = [run[name] for run in found], ".2f" if name == "loss" else ".0%"
        around = f" ({min(values):{form}} to {max(values):{form}})" if len(values) > 1 else ""
        parts.append(f"{name} {np.mean(values):{form}}{around}")
    return "  ".join(parts)


def broken(runs: list[dict[tuple[str, int], Found]]) -> Iterator[str]:
    """What does not hold of the claim, seed by seed."""
    last = BUDGETS[-1]
    for seed, run in zip(SEEDS, runs, strict=True):
        ours = [run[SHIFTED, budget] for budget in BUDGETS]
        if not ours[0]["loss"] > ours[1]["loss"] > ours[2]["loss"]:
            yield f"seed {seed}: the loss of the converted model does not fall"
        for other in SCRATCH:
            for budget in BUDGETS[:-1]:
                if not run[SHIFTED, budget]["loss"] < run[other, budget]["loss"] - 0.05:
                    yield f"seed {seed}, {budget} steps: {other} has no larger loss"
                if not run[SHIFTED, budget]["filled"] > run[other, budget]["filled"] + 0.1:
                    yield f"seed {seed}, {budget} steps: {other} does not fill in clearly worse"
            if not run[SHIFTED, last]["begun"] > run[other, last]["begun"] + 0.3:
                yield f"seed {seed}, {last} steps: {other} does not write clearly worse"


def main(folder: Path) -> int:
    """Everything; the exit code."""
    keep()
    folder.mkdir(exist_ok=True)
    draws = random.Random(0)
    text, held_out = folder / "train.txt", folder / "held-out.txt"
    for path, count in ((text, SENTENCES), (held_out, HELD_OUT)):
        path.write_text(" ".join(word for _ in range(count) for word in draw(SENTENCE, draws)))
    runs: list[dict[tuple[str, int], Found]] = []
    samples: dict[str, list[str]] = {}
    for seed in SEEDS:
        runs.append({})
        for name, budget, found, written in once(folder / f"seed {seed}", seed, text, held_out):
            runs[-1][name, budget] = found
            if budget == BUDGETS[-1]:
                samples.setdefault(name, []).append(written)
    print(f"\nmeans of {len(runs)} seeds (least to most); before, the converted had {LLAMA_STEPS} steps as a Llama")
    for budget in BUDGETS:
        for name in WAYS:
            print(f"{budget:4} steps  {name:17}{line([run[name, budget] for run in runs])}")
    for name, texts in samples.items():
        print(f"\n{name}, {BUDGETS[-1]} steps, one text a seed:", *texts, sep="\n  ")
    failed = list(broken(runs))
    print("\n" + ("\n".join(failed) or "the claim holds: see `broken` in this file"))
    return bool(failed)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as scratch:
        sys.exit(main(Path(scratch)))
