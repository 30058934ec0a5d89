"""One canvas, from noise to text: a loop over steps that threads one small frozen state.

Legend: B batch, C canvas tokens, D hidden, V vocabulary.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mlx.core as mx

from .conditioning import confident_probabilities, soft_from_table
from .draws import Draws
from .embed import Embedding
from .options import Settings
from .samplers import CONFIDENCE, Canvas, Sampled, step_confidence, step_entropy
from .schedule import temper
from .stopping import History, decide

# Tokens of a canvas and a signal, or None, to capped logits.
Forward = Callable[[mx.array, mx.array | None], mx.array]


@dataclass(frozen=True)
class Carry:
    """Everything that one step hands to the next.

    Attributes:
        canvas: tokens, draft and what of it is revealed.
        signal: floats [B, C, D], the average embeddings of the step before; None at the first.
        history: best tokens of the last steps, for the stopping rule.
    """

    canvas: Canvas
    signal: mx.array | None = None
    history: History = ()


@dataclass(frozen=True)
class Step:
    """One step, looked at from outside.

    Attributes:
        number: counts down to 1.
        before: the state that it began with.
        logits: float32 [B, C, V], capped.
        processed: tempered logits.
        argmax: int32 [B, C], the best tokens; what the canvas gives if this step is the last.
        drawn: int32 [B, C] where the temperature draws tokens.
        noise: int32 [B, C]; None on a last step that does not sample.
        sampled: likewise.
        after: the state for the next step.
        stopped: whether the stopping rule ended the canvas.
        done: whether no step follows, for that reason or another.
    """

    number: int
    before: Carry
    logits: mx.array
    processed: mx.array
    argmax: mx.array
    drawn: mx.array | None = None
    noise: mx.array | None = None
    sampled: Sampled | None = None
    after: Carry | None = None
    stopped: bool = False
    done: bool = True


def begin(tokens_BC: mx.array) -> Carry:
    """The state of a canvas that is all noise."""
    return Carry(Canvas(tokens_BC, tokens_BC, mx.zeros(tokens_BC.shape, dtype=mx.bool_)))


def denoise(forward: Forward, embedding: Embedding, settings: Settings, draws: Draws, carry: Carry) -> Iterator[Step]:
    """The steps of a canvas, from the highest number down, until one is done.

    Args:
        forward: the canvas pass.
        embedding: for the signal.
        settings: sampler, schedule, stopping.
        draws: asked once a step for noise unless it is a last step that does not sample, and before that for a choice
            where the temperature draws tokens.
        carry: the state to begin with.
    """
    for number in range(settings.steps, 0, -1):
        logits_BCV = forward(carry.canvas.tokens, carry.signal)
        step = advance(carry, logits_BCV, number, settings, draws, embedding)
        yield step
        if step.done or step.after is None:
            return
        carry = step.after


def advance(
    carry: Carry, logits_BCV: mx.array, number: int, settings: Settings, draws: Draws, embedding: Embedding
) -> Step:
    """What one step makes of its logits."""
    options, last = settings.options, number == 1
    processed_BCV = temper(logits_BCV, settings.schedule.temperature(number, settings.steps))
    argmax_BC = best(processed_BCV)
    if last and not options.show:
        return Step(number, carry, logits_BCV, processed_BCV, argmax_BC)
    drawn_BC = choose(processed_BCV, options.temperature, draws) if options.temperature > 0 else None
    chosen_BC = argmax_BC if drawn_BC is None else drawn_BC
    noise_BC = draws.tokens(argmax_BC.shape[1])
    sampled = sample(carry.canvas, processed_BCV, argmax_BC, chosen_BC, noise_BC, settings, last=last)
    whole = options.sampler == CONFIDENCE and bool(mx.all(sampled.canvas.revealed).item())
    stopped, history = False, carry.history
    if not whole:
        stopped, history = decide(history, argmax_BC, processed_BCV, settings.stopping)
    done = last or whole or stopped
    signal_BCD = None if done else signal(processed_BCV, sampled, embedding)
    after = Carry(sampled.canvas, signal_BCD, history)
    return Step(number, carry, logits_BCV, processed_BCV, argmax_BC, drawn_BC, noise_BC, sampled, after, stopped, done)


def best(processed_BCV: mx.array) -> mx.array:
    """The likeliest token of each position, the first of equals, int32 [B, C]."""
    return mx.argmax(processed_BCV, axis=-1).astype(mx.int32)


def choose(processed_BCV: mx.array, temperature: float, draws: Draws) -> mx.array:
    """Tokens drawn at a temperature above 0, on top of the schedule's: int32 [B, C]."""
    logits_BCV = processed_BCV.astype(mx.float32)
    return draws.choose(logits_BCV if temperature == 1.0 else logits_BCV / temperature)


def sample(
    canvas: Canvas,
    processed_BCV: mx.array,
    argmax_BC: mx.array,
    chosen_BC: mx.array,
    noise_BC: mx.array,
    settings: Settings,
    *,
    last: bool,
) -> Sampled:
    """One step of the sampler that is asked for."""
    if settings.options.sampler == CONFIDENCE:
        threshold = settings.options.threshold
        return step_confidence(canvas, processed_BCV, chosen_BC, noise_BC, threshold, last=last)
    return step_entropy(argmax_BC, processed_BCV, chosen_BC, noise_BC, settings.entropy_bound, last=last)


def signal(processed_BCV: mx.array, sampled: Sampled, embedding: Embedding) -> mx.array:
    """The next step's signal, floats [B, C, D]: average embeddings under tempered probabilities, by either formula."""
    probabilities_BCV = sampled.probabilities
    if probabilities_BCV is None:
        probabilities_BCV = confident_probabilities(processed_BCV)
    return soft_from_table(probabilities_BCV, embedding.dense, embedding.scale)
