"""Text to ids and conversations to text: the tokenizer and the chat template that lie beside the weights."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from port.errors import CheckpointError, PortError, fetch_again

Messages = Sequence[Mapping[str, Any]]


class _Generation(Extension):
    """`{% generation %}` marks the model's own words for training; rendered, it is its contents."""

    tags = {"generation"}  # noqa: RUF012 -- the name and the type are Jinja's

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _tojson(value: Any, **options: Any) -> str:
    """JSON as it is, where Jinja's own filter would escape HTML."""
    return json.dumps(value, **{"ensure_ascii": False, **options})


def _now(pattern: str) -> str:
    return datetime.now().strftime(pattern)  # noqa: DTZ005 -- templates mean the reader's own date


def environment() -> ImmutableSandboxedEnvironment:
    """What chat templates are written for: the sandbox, whitespace rules, filters and globals of transformers."""
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    made.filters["tojson"] = _tojson
    made.globals.update(raise_exception=_raise, strftime_now=_now)
    return made


def _read(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CheckpointError(
            str(path), found=f"it cannot be read ({error})", expected=what, mend=fetch_again(path.parent, path.name)
        ) from error


def _json(path: Path) -> dict[str, Any]:
    try:
        raw = json.loads(_read(path, "a JSON object"))
    except ValueError as error:
        raise CheckpointError(
            str(path),
            found=f"it is not JSON ({error})",
            expected="a JSON object",
            mend=fetch_again(path.parent, path.name),
        ) from error
    return raw if isinstance(raw, dict) else {}


def _template(directory: Path, settings: Mapping[str, Any]) -> str:
    """The template: its own file if there is one, else that of the tokenizer's settings."""
    if (directory / "chat_template.jinja").exists():
        return _read(directory / "chat_template.jinja", "a Jinja template")
    if (directory / "chat_template.json").exists():
        settings = _json(directory / "chat_template.json")
    template = settings.get("chat_template")
    if not isinstance(template, str):
        raise CheckpointError(
            str(directory),
            found="it has no chat template",
            expected="chat_template.jinja, or chat_template in tokenizer_config.json",
            mend=fetch_again(directory, "chat_template.jinja", "tokenizer_config.json"),
        )
    return template


class Tokens:
    """The tokenizer of a checkpoint.

    Args:
        directory: holds tokenizer.json, tokenizer_config.json and the chat template.

    Raises:
        CheckpointError: a file is absent or cannot be parsed.
    """

    def __init__(self, directory: Path) -> None:
        path = directory / "tokenizer.json"
        text = _read(path, "a tokenizer")
        try:
            self._tokenizer = Tokenizer.from_str(text)
        except Exception as error:  # the library raises nothing more precise
            raise CheckpointError(
                str(path),
                found=f"it is no tokenizer ({error})",
                expected="a tokenizer",
                mend=fetch_again(directory, path.name),
            ) from error
        # Files remember how they were last used; a prompt is never cut or filled up.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._decoder = json.loads(text).get("decoder")
        settings = _json(directory / "tokenizer_config.json")
        named = {name: token for name, token in settings.items() if name.endswith("_token")}
        texts = {name: token.get("content") if isinstance(token, dict) else token for name, token in named.items()}
        self._special = {name: token for name, token in texts.items() if isinstance(token, str)}
        self._directory, self._settings = directory, settings
        self._compiled: jinja2.Template | None = None

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Ids of a text; markers inside it become their own ids, and `special` puts the beginning token first."""
        return list(self._tokenizer.encode(text, add_special_tokens=special).ids)

    @property
    def decoder(self) -> Any:
        """How the tokenizer's file says that pieces become text."""
        return self._decoder

    def pieces(self) -> list[str | None]:
        """The vocabulary by id, markers included; None where an id has no piece."""
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        found: list[str | None] = [None] * (max(vocabulary.values()) + 1)
        for piece, token in vocabulary.items():
            found[token] = piece
        return found

    def marker(self, name: str) -> int | None:
        """The id of a special token by its name in the settings, `eos_token` for one; None where there is none."""
        text = self._special.get(name)
        return None if text is None else self._tokenizer.token_to_id(text)

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        """Text of ids."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=skip_special))

    def chat(self, messages: Messages, *, prompt: bool = True, **extra: Any) -> str:
        """A conversation as text.

        Args:
            messages: each with `role` and `content`.
            prompt: end with the opening of the model's turn.
            extra: further variables of the template, `enable_thinking` for one.

        Raises:
            CheckpointError: there is no template, or it does not parse.
            PortError: the template refuses the conversation.
        """
        try:
            if self._compiled is None:
                self._compiled = environment().from_string(_template(self._directory, self._settings))
        except jinja2.TemplateSyntaxError as error:
            raise CheckpointError(
                f"{self._directory}, chat template",
                found=f"line {error.lineno} does not parse ({error.message})",
                expected="a Jinja template",
                mend=fetch_again(self._directory, "chat_template.jinja"),
            ) from error
        variables = {"tools": None, "documents": None, **self._special, **extra}
        try:
            return self._compiled.render(messages=messages, add_generation_prompt=prompt, **variables)
        except jinja2.TemplateError as error:
            raise PortError(
                "conversation",
                found=f"the chat template refuses it: {error.message}",
                expected="messages that the template knows",
                mend="change the message that it names",
            ) from error


@lru_cache(maxsize=4)
def tokens_of(directory: Path) -> Tokens:
    """The tokenizer of a checkpoint directory, read once."""
    return Tokens(directory)
