"""A little English with a grammar: who does what to whom, in number and kind; so what is written is right or wrong.

A rule is a word, a tuple (one after the other) or a list (one of them). The same rules write sentences and, as one
regular expression, read them.
"""

import random
import re
from collections.abc import Iterator

Rule = str | tuple["Rule", ...] | list["Rule"]

# kind: its nouns (many have an s), and what they can be said to be
KINDS = {
    "person": ("farmer baker teacher sailor doctor painter gardener judge miller weaver",
        "tired young clever proud kind"),
    "animal": ("goat dog cow horse rabbit hen cat duck donkey bear",
        "brown hungry wild sleepy tame"),
    "food": ("bun pie carrot melon bean plum cake pear turnip cheese",
        "fresh sweet stale warm ripe"),
    "building": ("barn mill chapel tower cottage school castle tavern bridge harbour",
        "grand stone narrow ruined tall"),
    "vehicle": ("wagon boat cart sledge carriage truck barge tractor bicycle raft",
        "fast rusty heavy slow painted"),
    "plant": ("pine rose willow fern tulip maple vine clover shrub reed",
        "green blooming thorny withered leafy"),
    "writing": ("letter poem book note tale map song play sermon bill",
        "long secret famous sad short"),
}  # fmt: skip
# who does it, to what: verbs (of one they have an s)
DEEDS = {
    ("person", "food"): "eat sell slice peel roast",
    ("person", "animal"): "feed train stroke groom",
    ("person", "building"): "build enter clean visit",
    ("person", "vehicle"): "drive repair load steer",
    ("person", "plant"): "water trim grow pick",
    ("person", "writing"): "read write sign lose",
    ("animal", "food"): "smell steal swallow guard",
    ("animal", "animal"): "hunt chase bite follow",
    ("animal", "plant"): "nibble trample dig shred",
    ("vehicle", "building"): "skirt leave avoid circle",
    ("vehicle", "person"): "lift bring delay collect",
    ("writing", "person"): "praise mention describe insult",
}
ONE, MANY = ["the", "a", "this", "every"], ["the", "some", "these", "two"]


def thing(kind: str, *, many: bool) -> Rule:
    """One or many of a kind, and how they are."""
    nouns, adjectives = (words.split() for words in KINDS[kind])
    return ([*(MANY if many else ONE)], [*adjectives], [noun + "s" * many for noun in nouns])


def deed(doer: str, target: str, *, many: bool) -> Rule:
    """What one or many of a kind do to another."""
    verbs = [verb + "s" * (not many) for verb in DEEDS[doer, target].split()]
    return ([*verbs], [thing(target, many=False), thing(target, many=True)])


SENTENCE: Rule = (
    [
        (thing(kind, many=many), [deed(doer, target, many=many) for doer, target in DEEDS if doer == kind])
        for kind in dict.fromkeys(doer for doer, _ in DEEDS)
        for many in (False, True)
    ],
    ".",
)


def draw(rule: Rule, draws: random.Random) -> list[str]:
    """One way to follow a rule."""
    if isinstance(rule, str):
        return [rule]
    if isinstance(rule, list):
        return draw(draws.choice(rule), draws)
    return [word for part in rule for word in draw(part, draws)]


def words(rule: Rule) -> Iterator[str]:
    """Every word of a rule."""
    if isinstance(rule, str):
        yield rule
    else:
        for part in rule:
            yield from words(part)


def pattern(rule: Rule) -> str:
    """A rule as a regular expression, in which every word is followed by a space."""
    if isinstance(rule, str):
        return re.escape(rule) + " "
    return "(?:" + ("|" if isinstance(rule, list) else "").join(map(pattern, rule)) + ")"


LEXICON = sorted(set(words(SENTENCE)))
_READS = re.compile(pattern(SENTENCE))


def is_right(sentence: list[str]) -> bool:
    """Whether the words, full stop included, are a sentence of the grammar."""
    return _READS.fullmatch("".join(f"{word} " for word in sentence)) is not None
