"""Generation: the prompt is encoded once, then canvas after canvas is denoised, emitted and put into the cache.

Legend: B batch (1), T prompt tokens, C canvas tokens.
"""

import time
from collections.abc import Generator as Gen
from collections.abc import Iterator, Sequence
from contextlib import nullcontext

import mlx.core as mx

from port.errors import OptionError

from . import canvas as canvases
from . import lanes
from .cache import Cache
from .canvas import Forward
from .detokenizer import Detokenizer, detokenizer, masked
from .draws import Draws, Generator
from .events import Block, Draft, End, Event, Piece
from .model import DiffusionGemma
from .options import Options, Settings, ids, resolve
from .sight import Sight
from .tokens import Tokens

RETRIES = 3  # of a whole generation that leaves no text


def stop_tokens(model: DiffusionGemma, tokens: Tokens, settings: Settings) -> frozenset[int]:
    """Ids that end a generation: the tokenizer's, config.json's, and those of a generation config that is in force."""
    own = tokens.marker("eos_token")
    usual = {own, *ids(model.config.eos_token_id)} - {None}
    return frozenset(usual or {1}) | settings.eos


def stream(
    model: DiffusionGemma,
    tokens: Tokens,
    prompt: str | Sequence[int] | Sight,
    options: Options | None = None,
    *,
    generation_config: dict[str, object] | None = None,
    draws: Draws | None = None,
) -> Iterator[Event]:
    """Generate, event by event.

    Args:
        model: the model.
        tokens: its tokenizer.
        prompt: text, to which the beginning token is added, token ids, or a question about pictures.
        options: what is asked; the defaults otherwise.
        generation_config: a parsed one; None for the one inside config.json, if there is one.
        draws: where random tokens come from; MLX's generator, as it stands, otherwise.

    Raises:
        OptionError: the prompt is empty, or an option or the generation config holds what is not allowed.
    """
    settings = resolve(options or Options(), model.config, generation_config)
    sight = prompt if isinstance(prompt, Sight) else None
    if isinstance(prompt, Sight):
        prompt = prompt.ids[0].tolist()
    prompt_ids = tokens.encode(prompt) if isinstance(prompt, str) else list(prompt)
    _check(prompt_ids, model)
    draws = draws or Generator(model.config.text_config.vocab_size)
    return _Generation(model, tokens, settings, draws).events(prompt_ids, sight)


def generate(
    model: DiffusionGemma,
    tokens: Tokens,
    prompt: str | Sequence[int] | Sight,
    options: Options | None = None,
    *,
    generation_config: dict[str, object] | None = None,
    draws: Draws | None = None,
) -> str:
    """The whole text. A generation without any is tried again, at most three times in all, with the draws that follow.

    Arguments and errors as of `stream`.
    """
    text = ""
    for _ in range(RETRIES):
        events = stream(model, tokens, prompt, options, generation_config=generation_config, draws=draws)
        text = "".join(event.text for event in events if isinstance(event, Piece | End))
        if text.strip():
            break
    return text


def _check(prompt_ids: Sequence[int], model: DiffusionGemma) -> None:
    if not prompt_ids:
        raise OptionError(
            "prompt", found="it has no tokens", expected="at least one", mend="give some text, or the beginning token"
        )
    vocabulary = model.config.text_config.vocab_size
    if wrong := [token for token in prompt_ids if not 0 <= token < vocabulary]:
        raise OptionError(
            "prompt",
            found=f"it holds the token {wrong[0]}",
            expected=f"tokens from 0 to {vocabulary - 1}",
            mend="encode it with this checkpoint's tokenizer",
        )


def prefill(
    model: DiffusionGemma, prompt_ids: Sequence[int], cache: list[Cache], chunk: int | None, sight: Sight | None = None
) -> None:
    """Encode the prompt, whole or `chunk` tokens at a time; the cache ends up evaluated. With pictures it is whole."""
    if sight is not None:
        with lanes.two():
            model.encode(sight.ids, cache, None, sight.features, sight.types)
        mx.eval([pair for store in cache if (pair := store.seen()) is not None])
        return
    ids_BT = mx.array(prompt_ids, dtype=mx.int32)[None]
    for start in range(0, len(prompt_ids), chunk or len(prompt_ids)):
        with lanes.two():
            model.encode(ids_BT[:, start : start + (chunk or len(prompt_ids))], cache)
        mx.eval([pair for store in cache if (pair := store.seen()) is not None])
        if chunk:
            mx.clear_cache()


def decoder(model: DiffusionGemma, cache: list[Cache], length: int, *, compiled: bool) -> Forward:
    """The canvas pass of one block: what it reads of the cache is got ready once, and the cache is not written."""
    prefix = model.prefix(length, cache).trimmed([layer.self_attn.window for layer in model.layers], length)

    def first(tokens_BC: mx.array) -> mx.array:
        return model.logits(model.denoise(tokens_BC, prefix))

    def later(tokens_BC: mx.array, signal_BCD: mx.array) -> mx.array:
        return model.logits(model.denoise(tokens_BC, prefix, signal_BCD))

    if compiled:
        model.weights.read()
        first, later = mx.compile(first), mx.compile(later)

    def forward(tokens_BC: mx.array, signal_BCD: mx.array | None) -> mx.array:
        with nullcontext() if compiled else lanes.two():
            return first(tokens_BC) if signal_BCD is None else later(tokens_BC, signal_BCD)

    return forward


class _Generation:
    """One generation under way."""

    def __init__(self, model: DiffusionGemma, tokens: Tokens, settings: Settings, draws: Draws) -> None:
        self.model, self.tokens, self.settings, self.draws = model, tokens, settings, draws
        self.stops = stop_tokens(model, tokens, settings)
        self.text: Detokenizer = detokenizer(tokens)
        self.made = 0
        self.finish = ""

    def events(self, prompt_ids: Sequence[int], sight: Sight | None = None) -> Iterator[Event]:
        started = time.perf_counter()
        settings, options = self.settings, self.settings.options
        cache = self.model.new_cache(settings.capacity(len(prompt_ids)))
        chunk = None if settings.capacity(len(prompt_ids)) else options.prefill_step
        prefill(self.model, prompt_ids, cache, chunk, sight)
        encoded = time.perf_counter()
        block, finished_BC = 0, None
        while not self.finish and self.made < settings.max_tokens:
            block += 1
            if finished_BC is not None:
                with lanes.two():
                    self.model.encode(finished_BC, cache)
            finished_BC = yield from self._canvas(block, cache)
            mx.clear_cache()
        now = time.perf_counter()
        yield End(
            self.finish or "length",
            self.text.finish(),
            len(prompt_ids),
            self.made,
            encoded - started,
            now - encoded,
            mx.get_peak_memory(),
        )

    def _canvas(self, block: int, cache: list[Cache]) -> Gen[Event, None, mx.array]:
        """One canvas; gives its tokens, int32 [1, C]."""
        settings, options = self.settings, self.settings.options
        length = settings.canvas_length(self.made)
        carry = canvases.begin(self.draws.tokens(length))
        forward = decoder(self.model, cache, length, compiled=options.compile)
        if options.show:
            yield self._draft(block, 0, carry.canvas.draft, carry.canvas.revealed)
        done, argmax_BC = 0, carry.canvas.tokens
        for step in canvases.denoise(forward, self.model.embed_tokens, settings, self.draws, carry):
            done, argmax_BC = done + 1, step.argmax
            due = done == 1 or step.number == 1 or done % options.show_every == 0
            if options.show and due and step.after is not None:
                yield self._draft(block, done, step.after.canvas.draft, step.after.canvas.revealed)
        yield from self._emit(argmax_BC)
        yield Block(block, length, done)
        return argmax_BC

    def _emit(self, argmax_BC: mx.array) -> Iterator[Event]:
        for token in argmax_BC[0].tolist():
            self.made += 1
            if token in self.stops:
                self.finish = "stop"
                yield Piece(token, "", stops=True)
                return
            yield Piece(token, "" if token in self.settings.options.skip else self.text.add(token))
            if self.made >= self.settings.max_tokens:
                self.finish = "length"
                return

    def _draft(self, block: int, done: int, draft_BC: mx.array, revealed_BC: mx.array) -> Draft:
        shown, revealed = draft_BC[0].tolist(), revealed_BC[0].tolist()
        text = masked(self.tokens, shown, revealed)
        return Draft(block, done, self.settings.steps, text, tuple(shown), tuple(revealed))
