"""A question about pictures, made ready for the encoder: `encode(sight.ids, cache, None, sight.features, sight.types)`.

Legend: T tokens, N soft tokens of all pictures, D hidden.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx

from port.errors import PictureError

from . import image, picture, splice
from .model import DiffusionGemma
from .tokens import Tokens, tokens_of


@dataclass(frozen=True)
class Sight:
    """What an encoder pass over a prompt with pictures takes.

    Attributes:
        ids: int32 [1, T].
        types: int32 [1, T], 1 for soft tokens.
        features: floats [1, N, D] in the model's compute dtype.
    """

    ids: mx.array
    types: mx.array
    features: mx.array


def see(
    model: DiffusionGemma,
    text: str,
    pictures: Sequence[Path],
    *,
    budget: int = image.BUDGET,
    tokens: Tokens | None = None,
) -> Sight:
    """Look at picture files, and put them before a question in one user turn.

    Args:
        model: with a vision tower.
        text: the question.
        pictures: files, in the order in which they are shown; the same one may be shown twice.
        budget: soft tokens that each may take.
        tokens: the checkpoint's tokenizer; read from its directory if not given.

    Raises:
        PictureError: a file is refused, there is none, the text writes placeholders of its own, the budget is unknown
            or more than the tower has room for, or the model does not see. Nothing was computed then.
    """
    image.check_budget(budget)
    if not pictures:
        raise PictureError("pictures", found="there are none", expected="at least one", mend="ask without looking")
    prepared = [image.prepare(picture.read(path), budget) for path in pictures]
    tokens = tokens or tokens_of(model.weights.directory)
    ids, types = splice.prompt(tokens, model.config, text, [one.soft_tokens for one in prepared])
    return Sight(mx.array(ids)[None], mx.array(types)[None], model.look(image.batch(prepared)))
