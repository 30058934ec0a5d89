"""Unmasking: the corrected schedule's promises, and what the seed's does instead."""

import click.testing
import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metadiffusion_files import drawn, llama, tokenizer

from port.__main__ import main
from port.metadiffusion import unmask

MASK, PAD = 11, 0
MODEL = drawn()


def start(rows: list[list[int]]) -> mx.array:
    return mx.array(np.array(rows, np.int32))


@given(st.integers(0, 300), st.integers(1, 300))
def test_the_corrected_counts_reveal_every_mask_once(hidden, steps):
    counts = unmask.corrected_counts(np.array([hidden]), steps)[:, 0]
    assert counts.sum() == hidden
    assert counts.max() - counts.min() <= 1
    assert (np.diff(counts) <= 0).all()


# (length, steps, tokens revealed): the seed's counts as PyTorch gives them.
@pytest.mark.parametrize(
    ("tokens", "steps", "revealed"), [(100, 10, 96), (256, 100, 200), (6, 3, 5), (12, 3, 11), (64, 64, 64), (64, 8, 64)]
)
def test_the_seeds_counts_lose_tokens(tokens, steps, revealed):
    assert sum(count for _, count in unmask.seed_schedule(tokens, steps)) == revealed


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([1, 5, MASK]), min_size=7, max_size=7), min_size=1, max_size=3), st.integers(1, 9)
)
def test_every_mask_is_written_once_and_nothing_else_is_touched(rows, steps):
    canvas = start(rows)
    seen = []
    final = np.array(
        unmask.generate(MODEL, canvas, steps, watch=lambda _s, _l, before, _c, after: seen.append((before, after)))
    )
    hidden = np.array(canvas) == MASK
    assert not (final == MASK).any()
    assert not (final[hidden] == PAD).any()
    assert (final[~hidden] == np.array(canvas)[~hidden]).all()
    written = sum(((np.array(a) != np.array(b)).astype(int) for a, b in seen), np.zeros(canvas.shape, int))
    assert (written == hidden).all()
    assert len(seen) <= steps


def test_the_seeds_schedule_leaves_masks_or_overwrites():
    canvas = start([[MASK] * 6])
    left = unmask.generate(MODEL, canvas, 3, "seed")
    assert int((left == MASK).sum()) == 1  # its counts sum to 5 of 6
    writes = []

    def watch(_step, _logits, before, _count, _after):
        writes.append(int((before == MASK).sum()))

    unmask.generate(MODEL, start([[MASK] * 4]), 9, "seed", watch)
    assert writes == [4, 3, 2, 1, 0, 0, 0, 0, 0]  # and goes on when there is nothing left to reveal


def test_the_surest_go_first_and_the_first_of_equals():
    ids, token = start([[MASK, 3, MASK, MASK, MASK]]), start([[5, 6, 7, 8, 9]])
    sure = mx.array([[0.5, 0.99, 0.9, 0.5, 0.5]])
    got = [np.array(unmask.reveal(ids, token, sure, np.array([n]), MASK))[0].tolist() for n in range(5)]
    assert got == [
        [MASK, 3, MASK, MASK, MASK],
        [MASK, 3, 7, MASK, MASK],
        [5, 3, 7, MASK, MASK],
        [5, 3, 7, 8, MASK],
        [5, 3, 7, 8, 9],
    ]
    assert np.array(unmask.reveal_seed(ids, token, sure, np.array([5]), MASK))[0].tolist() == [5, 6, 7, 8, 9]


def test_a_row_of_a_batch_is_what_it_is_alone():
    rows = [[4, 5, MASK, MASK, MASK, MASK], [9, MASK, MASK, MASK, MASK, MASK], [1, 2, 3, 4, 5, 6]]
    together = np.array(unmask.generate(MODEL, start(rows), 3))
    for row, got in zip(rows, together, strict=True):
        assert np.array(unmask.generate(MODEL, start([row]), 3))[0].tolist() == got.tolist()


def test_padding_and_mask_are_forbidden_only_by_the_corrected_schedule():
    logits = mx.zeros((1, 1, 12)).at[0, 0, MASK].add(9.0).at[0, 0, PAD].add(8.0).at[0, 0, 4].add(1.0)
    assert unmask.best(logits, ())[0].item() == MASK
    assert unmask.best(logits, unmask.never(MODEL))[0].item() == 4


@pytest.mark.parametrize(("steps", "schedule"), [(0, "corrected"), (-1, "seed"), (3, "linear")])
def test_what_cannot_be_run_is_refused(steps, schedule):
    with pytest.raises(ValueError, match="at least 1, by one of corrected, seed"):
        unmask.generate(MODEL, start([[MASK]]), steps, schedule)


def test_a_shifted_head_is_read_one_position_before():
    plain, shifted = drawn(), drawn(ar_shift=True)
    ids, t = start([[4, MASK, 6]]), mx.array([0.3])
    logits, moved = plain.predict(ids, t), shifted.predict(ids, t)
    assert mx.array_equal(moved[:, 1:], logits[:, :-1])
    assert mx.array_equal(plain(ids, t), shifted(ids, t))


def test_an_integer_timestep_is_refused():
    with pytest.raises(ValueError, match="t has the dtype"):
        MODEL(start([[4]]), mx.array([1]))


def test_the_command_writes_after_each_prompt(tmp_path):
    folder = llama(tmp_path / "model", "metadiffusion")
    tokenizer(folder)
    call = click.testing.CliRunner().invoke
    said = call(main, ["generate", "abc", "hello", "--checkpoint", str(folder), "--tokens", "6", "--steps", "3"])
    assert said.exit_code == 0, said.output
    first, second = (line for line in said.stdout.split("\n") if line.startswith(("abc", "hello")))
    assert (first[:3], second[:5]) == ("abc", "hello")
    again = call(main, ["generate", "hello", "--checkpoint", str(folder), "--tokens", "6", "--steps", "3"])
    assert again.stdout in said.stdout
    assert call(main, ["generate", "--checkpoint", str(folder), "--tokens", "4"]).exit_code == 0
    (folder / "tokenizer.json").unlink()
    assert call(main, ["generate", "--checkpoint", str(folder)]).exit_code == 3
    assert call(main, ["generate", "--checkpoint", str(folder), "--steps", "0"]).exit_code == 2
