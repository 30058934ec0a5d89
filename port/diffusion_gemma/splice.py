"""Pictures in a prompt: the places that they take among the ids, and the soft tokens that are put there.

Legend: B batch, T tokens, N soft tokens of all pictures together, D hidden.
"""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from port.errors import PictureError

from .config import ModelConfig
from .tokens import Tokens

PLACEHOLDER = "<|image|>"
TEXT, IMAGE, VIDEO = 0, 1, 2  # token types


def expand(ids: Sequence[int], soft: Sequence[int], config: ModelConfig) -> tuple[np.ndarray, np.ndarray]:
    """Let each picture's one id become an opening, as many ids as it has soft tokens, and a closing.

    Args:
        ids: a prompt in which each picture stands as one `image_token_id`.
        soft: soft tokens of each picture, in order.
        config: names the three ids.

    Returns:
        ids int32 [T], and types int32 [T]: 1 for the soft tokens, 0 for all else, openings and closings included.

    Raises:
        PictureError: the prompt has more or fewer places than there are pictures, or the model has no ids for them.
    """
    opening, image, closing = config.boi_token_id, config.image_token_id, config.eoi_token_id
    places = list(ids).count(image) if image is not None else 0
    if opening is None or image is None or closing is None or places != len(soft):
        raise PictureError(
            "prompt",
            found=f"{len(soft)} pictures for {places} places ({PLACEHOLDER})",
            expected="one place a picture, in a model that has ids for them",
            mend=f"give each picture once, and write no {PLACEHOLDER} of your own into the text",
        )
    counts = iter(soft)
    out: list[int] = []
    for token in ids:
        out += [opening, *[image] * next(counts), closing] if token == image else [token]
    spliced = np.array(out, np.int32)
    return spliced, (spliced == image).astype(np.int32) * IMAGE


def prompt(tokens: Tokens, config: ModelConfig, text: str, soft: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """One user turn that shows pictures and then says `text`: ids and types as `expand` gives them."""
    content = PLACEHOLDER * len(soft) + text
    # The template writes the beginning token itself.
    ids = tokens.encode(tokens.chat([{"role": "user", "content": content}]), special=False)
    return expand(ids, soft, config)


def merge(h_BTD: mx.array, places_BT: mx.array, features_BND: mx.array) -> mx.array:
    """Put soft tokens in their places, in order; they are not scaled as embeddings are.

    Args:
        h_BTD: embeddings.
        places_BT: booleans, true where a soft token belongs.
        features_BND: soft tokens, in any grouping.

    Returns:
        floats [B, T, D] in the dtype of h.

    Raises:
        PictureError: as many soft tokens as places there are not; the reference would repeat or drop some.
    """
    soft_ND = features_BND.reshape(-1, h_BTD.shape[-1])
    places = int(places_BT.sum().item())
    if places != soft_ND.shape[0]:
        raise PictureError(
            "prompt",
            found=f"{soft_ND.shape[0]} soft tokens for {places} places",
            expected="a soft token for every place",
            mend="expand the prompt with the counts of the pictures that it is given",
        )
    order_BT = mx.maximum(mx.cumsum(places_BT.flatten().astype(mx.int32)) - 1, 0).reshape(places_BT.shape)
    return mx.where(places_BT[..., None], soft_ND[order_BT].astype(h_BTD.dtype), h_BTD)
