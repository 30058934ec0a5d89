"""A demonstration: a small Llama learns a little English, is converted, and learns to unmask; beside one from scratch.

`python tests/demo_metadiffusion.py [FOLDER]` writes a text from a grammar, trains a Llama on it letter by letter,
converts it, trains it and an untrained twin alike as diffusion models, and prints what each then knows. Minutes on a
laptop. Seeds are fixed; nothing is read but this file.
"""

import dataclasses
import json
import random
import sys
import tempfile
from functools import partial
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx import nn, optimizers
from mlx.utils import tree_flatten
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from port.metadiffusion import checkpoint, convert, diffusion, unmask
from port.metadiffusion import model as modelling
from port.metadiffusion.convert import configure
from port.metadiffusion.lessons import lesson, read_text
from port.metadiffusion.train import Recipe, train

LETTERS = "abcdefghijklmnopqrstuvwxyz .,"
NOUNS = [
    "river",
    "mountain",
    "garden",
    "winter",
    "letter",
    "kitchen",
    "teacher",
    "window",
    "farmer",
    "harbour",
    "candle",
    "bridge",
    "forest",
    "village",
]
VERBS = ["crosses", "remembers", "follows", "keeps", "paints", "watches", "carries", "answers", "leaves", "finds"]
WAYS = ["quietly", "slowly", "again", "today", "often", "together", "early"]
ADJECTIVES = ["old", "green", "quiet", "long", "bright", "broken", "small", "distant"]
BUDGETS = (60, 120, 240, 480)  # steps of unmasking after which it is asked what a model knows
RECIPE = Recipe(steps=BUDGETS[-1], batch=16, length=48, rate=2e-3, warmup=20)
LLAMA_STEPS, LLAMA_RATE, LLAMA_WARMUP = 1500, 3e-3, 50
SEEDS = (0, 1, 2)
ROWS, WRITTEN, PROMPT, PASSES = 40, 60, 14, 23  # texts that are written, their letters, those given, passes a text
WAYS_TO_START = {"converted": ("taught", False), "shifted": ("taught", True), "scratch": ("untaught", False)}


def sentence(draws: random.Random) -> str:
    def thing() -> str:
        return (
            f"the {draws.choice(ADJECTIVES)} {draws.choice(NOUNS)}"
            if draws.random() < 0.6
            else f"the {draws.choice(NOUNS)}"
        )

    return f"{thing()} {draws.choice(VERBS)} {thing()} {draws.choice(WAYS)}"


def write(folder: Path) -> tuple[Path, Path]:
    draws = random.Random(0)
    paths = []
    for name, count in (("train.txt", 4000), ("held-out.txt", 200)):
        paths.append(folder / name)
        paths[-1].write_text(". ".join(sentence(draws) for _ in range(count)) + ". ")
    return paths[0], paths[1]


def llama(folder: Path, seed: int = 0) -> Path:
    """An untrained Llama with a tokenizer of letters."""
    folder.mkdir()
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    raw = {
        "model_type": "llama",
        **sizes,
        "num_key_value_heads": 2,
        "vocab_size": 4 + len(LETTERS),
        "rms_norm_eps": 1e-5,
    }
    raw |= {"max_position_embeddings": 128, "rope_theta": 10000.0, "pad_token_id": 1, "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(raw))
    words = {"<unk>": 0, "<pad>": 1, "<s>": 2, "</s>": 3} | {letter: i for i, letter in enumerate(LETTERS, 4)}
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    made.decoder = decoders.Fuse()
    made.save(str(folder / "tokenizer.json"))
    mx.random.seed(seed)
    save_llama(modelling.MetaDiffusion(configure(folder)), folder)
    return folder


def save_llama(model: modelling.MetaDiffusion, folder: Path) -> None:
    """What of the model is a Llama, under a Llama's names."""
    kept = {name: x for name, x in tree_flatten(model.parameters()) if "timestep" not in name}
    kept["embed_tokens.weight"] = kept["embed_tokens.weight"][:-1]
    mx.save_safetensors(str(folder / "model.safetensors"), {f"model.{name}": x for name, x in kept.items()})


def teach(folder: Path, ids: np.ndarray, seed: int) -> float:
    """Train the Llama to say the next letter; returns its loss at the end."""
    model = convert.converted(folder, mx.float32)
    plain = modelling.additive
    tokens = RECIPE.length
    causal = mx.where(mx.tril(mx.ones((tokens, tokens), dtype=mx.bool_)), 0.0, modelling.BLOCKED)
    modelling.additive = lambda _padding, _dtype: causal  # a Llama is this model looking back only
    model.timestep_emb.freeze()
    for layer in model.layers:
        layer.timestep_residual.freeze()

    def scored(rows: mx.array) -> mx.array:
        logits = model(rows[:, :-1], mx.zeros((rows.shape[0],)))
        return nn.losses.cross_entropy(logits, rows[:, 1:], reduction="mean")

    rise = optimizers.linear_schedule(LLAMA_RATE / LLAMA_WARMUP, LLAMA_RATE, LLAMA_WARMUP)
    fall = optimizers.cosine_decay(LLAMA_RATE, LLAMA_STEPS - LLAMA_WARMUP)
    pace = optimizers.join_schedules([rise, fall], [LLAMA_WARMUP])
    gradient, optimizer = nn.value_and_grad(model, scored), optimizers.AdamW(learning_rate=pace)
    losses = []
    for step in range(LLAMA_STEPS):
        draws = np.random.Generator(np.random.PCG64([7, seed, step]))
        starts = draws.integers(0, len(ids) - tokens - 1, 16)
        loss, grads = gradient(mx.array(np.stack([ids[s : s + tokens + 1] for s in starts])))
        optimizer.update(model, grads)
        mx.eval(model.parameters(), optimizer.state, loss)
        losses.append(loss.item())
    modelling.additive = plain
    save_llama(model, folder)
    return float(np.mean(losses[-20:]))


def knows(folder: Path, held_out: Path) -> dict[str, float]:
    """Loss and accuracy on text that was not trained on, half of it masked; and words written that are words."""
    model = checkpoint.load(folder)
    ids = read_text(held_out, folder, model.config, RECIPE.length)
    draw = partial(
        lesson, ids, seed=99, batch=32, length=RECIPE.length, low=0.5, high=0.5, mask=model.config.mask_token_id
    )
    losses, right, count = [], 0, 0
    for step in range(8):
        batch = draw(step)
        logits = model.predict(batch.noisy, batch.t)
        losses.append(diffusion.flat_loss(logits, batch.labels, batch.masked, model.config.pad_token_id).item())
        right += int(((mx.argmax(logits, axis=-1) == batch.labels) & batch.masked).sum())
        count += int(batch.masked.sum())
    written = [word for text in write_on(model, folder) for word in text[PROMPT:].split()[1:-1]]
    lexicon = {*NOUNS, *VERBS, *WAYS, *ADJECTIVES, "the"}
    share = sum(word.strip(".,") in lexicon for word in written) / max(len(written), 1)
    return {"loss": float(np.mean(losses)), "accuracy": right / count, "words": share, "of": len(written)}


def write_on(model: modelling.MetaDiffusion, folder: Path) -> list[str]:
    """Texts that begin as sentences do, gone on with by the model."""
    words = Tokenizer.from_file(str(folder / "tokenizer.json"))
    starts = np.full((ROWS, WRITTEN), model.config.mask_token_id, np.int32)
    draws = random.Random(5)
    for row in starts:
        row[:PROMPT] = words.encode(sentence(draws)[:PROMPT]).ids
    return [words.decode([int(i) for i in row]) for row in np.array(unmask.generate(model, mx.array(starts), PASSES))]


def once(folder: Path, seed: int, text: Path, held_out: Path) -> dict[str, list[dict[str, float]]]:
    """One Llama and its untaught twin: what each way of starting knows after each budget."""
    folder.mkdir()
    sources = {"taught": llama(folder / "llama", seed), "untaught": llama(folder / "untaught", seed)}
    ids = read_text(text, sources["taught"], configure(sources["taught"]), RECIPE.length)
    print(
        f"seed {seed}: the Llama's loss after {LLAMA_STEPS} steps: {teach(sources['taught'], ids, seed):.3f}",
        flush=True,
    )
    found: dict[str, list[dict[str, float]]] = {}
    for name, (source, shift) in WAYS_TO_START.items():
        start = folder / f"start {name}"
        convert.convert(sources[source], start, ar_shift=shift)
        found[name] = []
        for budget in BUDGETS:  # each goes on from the one before it
            recipe = dataclasses.replace(RECIPE, steps=budget, every=budget, seed=seed)
            last = train(start, ids, recipe, folder / f"run {name}")
            found[name].append(knows(last, held_out))
            print(f"    {name}, {budget} steps: {found[name][-1]}", flush=True)
        print(f"    {name}: {write_on(checkpoint.load(last), last)[0]}", flush=True)
    return found


def main(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    text, held_out = write(folder)
    runs = [once(folder / f"seed {seed}", seed, text, held_out) for seed in SEEDS]
    print(f"\nmean of {len(runs)} seeds (least to most); words: of those written, how many are words")
    for i, budget in enumerate(BUDGETS):
        for name in WAYS_TO_START:
            columns = []
            for key in ("loss", "accuracy", "words"):
                values = [run[name][i][key] for run in runs]
                columns.append(f"{key} {np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})")
            count = sum(int(run[name][i]["of"]) for run in runs)
            print(f"{budget:4} steps  {name:10} {'  '.join(columns)} of {count}")
    print(json.dumps(runs))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(scratch))
