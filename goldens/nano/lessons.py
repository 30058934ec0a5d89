"""What the trained nano is taught: short questions and answers, from facts and from a small grammar.

`python -m goldens.nano.lessons OUT.jsonl` writes one JSON object a line: `kind`, `prompt`, `answer`, and `held`, true
for the lessons that training leaves out. Facts have one answer and are learned by heart; open prompts and stories have
many, so that a canvas has to settle on one; long stories need more than one canvas.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np

from goldens.nano import words

SEED = 20251
DRAWN = {"open": 8, "story": 14, "long": 6}  # answers drawn for each prompt of a kind
HELD_EVERY = 6  # of the lessons that a rule makes, one in so many is left out of training


@dataclass(frozen=True)
class Lesson:
    """A prompt, without the template's turns, and one good answer to it."""

    kind: str
    prompt: str
    answer: str
    held: bool = False


def lessons() -> list[Lesson]:
    """All lessons, in a fixed order; the same on every run."""
    rng = np.random.default_rng(SEED)
    return [*_facts(), *_rules(), *_code(), *_open(rng), *_stories(rng), *_long(rng)]


def _facts() -> Iterator[Lesson]:
    """Facts by heart. The last way to ask for a capital is left out for every third country."""
    for i, (country, city) in enumerate(words.CAPITALS.items()):
        answer = f"The capital of {country} is {city}."
        *asked, last = (phrase.format(country) for phrase in words.CAPITAL_QUESTIONS)
        for prompt in asked:
            yield Lesson("fact", prompt, answer)
        yield Lesson("fact", last, answer, held=i % 3 == 1)
    for question, answer in words.FACTS.items():
        yield Lesson("fact", question, answer)
    for word, other in words.OPPOSITES.items():
        yield Lesson("fact", f"What is the opposite of {word}?", f"The opposite of {word} is {other}.")
        yield Lesson("fact", f"What is the opposite of {other}?", f"The opposite of {other} is {word}.")


def _rules() -> Iterator[Lesson]:
    """Sums, counting and sentences made of the prompt's own words: what is left out can be worked out."""
    for a, b in itertools.product(range(10), repeat=2):
        yield Lesson("sum", f"What is {a} + {b}?", f"{a} + {b} = {a + b}.", held=_left_out(3 * a + b))
    for low, size in itertools.product(range(7), range(3, 10)):
        count = ", ".join(str(n) for n in range(low, low + size))
        yield Lesson("count", f"Count from {low} to {low + size - 1}.", f"{count}.", held=_left_out(low + 2 * size))
    for i, (colour, animal) in enumerate(itertools.product(words.COLOURS, words.ANIMALS)):
        place = words.PLACES[(3 * i + i // 7) % len(words.PLACES)]
        prompt = f"Put a {colour} {animal} in the {place}."
        yield Lesson("place", prompt, f"There is a {colour} {animal} in the {place}.", held=_left_out(i))


def _left_out(number: int) -> bool:
    return number % HELD_EVERY == HELD_EVERY - 1


def _code() -> Iterator[Lesson]:
    for i, (verb, (name, sign)) in enumerate(words.OPERATORS.items()):
        for j, (a, b) in enumerate(words.ARGUMENTS):
            text = f"def {name}({a}, {b}):\n    return {a} {sign} {b}"
            yield Lesson("code", f"Write a function that {verb} {a} and {b}.", text, held=(i + j) % 6 == 4)
    for top in range(2, 20):
        loop = f"for i in range({top}):\n    print(i)"
        yield Lesson("code", f"Write a loop of {top} numbers.", loop, held=top % 6 == 3)
    yield Lesson("code", "Write the Fibonacci function.", words.FIBONACCI)
    yield Lesson("code", "Write a class for a cache.", words.CACHE)


def _open(rng: np.random.Generator) -> Iterator[Lesson]:
    """Prompts that leave the answer open: a different one each time it is taught."""
    for what, choices in words.KINDS.items():
        for _ in range(DRAWN["open"]):
            one, two, three = (choices[i] for i in rng.permutation(len(choices))[:3])
            yield Lesson("open", f"Name a {what}.", f"{one.capitalize()} is a {what}.")
            yield Lesson("open", f"Name three {what}s.", f"{one.capitalize()}, {two} and {three}.")
    for greeting in words.GREETINGS:
        yield Lesson("open", "Say hello.", greeting)


def _sentences(rng: np.random.Generator, hero: str, count: int) -> list[str]:
    """Sentences about one animal, of which the first says where it lives and the last that it sleeps."""
    colour, place = _one(rng, words.COLOURS), _one(rng, words.PLACES)
    first = f"There was a {colour} {hero} who lived in the {place}."
    last = f"Then the {colour} {hero} went back to the {place} and slept."
    return [first, *(_event(rng, hero) for _ in range(count)), last]


def _event(rng: np.random.Generator, hero: str) -> str:
    told = _one(rng, words.EVENTS)
    return told.format(hero=hero, thing=_one(rng, words.THINGS), friend=_friend(rng, hero))


def _stories(rng: np.random.Generator) -> Iterator[Lesson]:
    for i, animal in enumerate(words.ANIMALS):
        held = _left_out(i)
        for _ in range(DRAWN["story"]):
            yield Lesson("story", f"Tell me a story about a {animal}.", " ".join(_sentences(rng, animal, 2)), held=held)


def _long(rng: np.random.Generator) -> Iterator[Lesson]:
    for i, animal in enumerate(words.ANIMALS):
        for _ in range(DRAWN["long"]):
            told = " ".join(_sentences(rng, animal, int(rng.integers(5, 11))))
            yield Lesson("long", f"Tell me a long story about a {animal}.", told, held=_left_out(i + 3))
    for prompt, text in words.BY_HEART.items():
        for _ in range(DRAWN["long"]):
            yield Lesson("heart", prompt, text)


def _one(rng: np.random.Generator, choices: tuple[str, ...]) -> str:
    return choices[int(rng.integers(len(choices)))]


def _friend(rng: np.random.Generator, hero: str) -> str:
    return _one(rng, tuple(animal for animal in words.ANIMALS if animal != hero))


@click.command()
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
def main(out: Path) -> None:
    """Write all lessons to OUT, one JSON object a line."""
    made = lessons()
    out.write_text("".join(json.dumps(asdict(lesson)) + "\n" for lesson in made), encoding="utf-8")
    click.echo(f"{len(made)} lessons in {out}, of which {sum(lesson.held for lesson in made)} are left out of training")


if __name__ == "__main__":
    main()
