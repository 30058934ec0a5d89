"""`pytest -k stage=moe`: exactly that stage. pytest's own grammar has no `=`, so the words are spelled over here.

`stage=moe`, `model=diffusion_gemma`, `case=long` become markers-like keywords `[stage:moe]`, whose brackets keep the
substring matching of -k from taking `moe` for a part of another name. Everything else in the expression is left as is.
"""

import re

import pytest

WORDS = ("model", "stage", "case", "compute", "mode")
ASKED = re.compile(rf"\b({'|'.join(WORDS)})=([\w+-]+)")


def spelled(expression: str) -> str:
    """A -k expression in pytest's grammar."""
    return ASKED.sub(r"[\1:\2]", expression)


def pytest_configure(config: pytest.Config) -> None:
    config.option.keyword = spelled(config.option.keyword)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each parity item its keywords; refuse a stage that no item has: a typo must not pass by selecting none."""
    known: dict[str, set[str]] = {}
    for item in items:
        if not item.get_closest_marker("parity"):
            continue
        for word, value in item.callspec.params.items():
            if word in WORDS:
                item.extra_keyword_matches.add(f"[{word}:{value}]")
                known.setdefault(word, set()).add(str(value))
    for word, value in re.findall(r"\[(\w+):([^\]]+)\]", config.option.keyword):
        if known and value not in known.get(word, set()):
            raise pytest.UsageError(
                f"-k {word}={value}: there is no such {word}; there are: {sorted(known.get(word, ()))}"
            )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The numbers that `harness run` prints, for the stages whose gates were asked for here."""
    lines = [
        value
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == "parity"
    ]
    if lines:
        terminalreporter.section("parity")
        for line in lines:
            terminalreporter.line(line)
