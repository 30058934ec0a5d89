"""The nano tokenizer: byte-fallback BPE of 704 pieces, trained on `corpus.txt`, in the family's file layout.

Spaces become `▁` before the merges and turn back in the decoder; a character outside the alphabet is spelled in
byte pieces. Special tokens sit where the model family expects them (5 at the bottom, the turn markers at 105 and
106, the media at the top), so a tokenizer that renumbers its vocabulary gives other ids here.
"""

from __future__ import annotations

import json
import string
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from goldens.nano import architecture as arch
from goldens.nano.architecture import Json

SPECIAL = {
    "<pad>": arch.PAD,
    "<eos>": arch.EOS,
    "<bos>": arch.BOS,
    "<unk>": arch.UNK,
    "<mask>": arch.MASK,
    "<|tool>": 46,
    "<tool|>": 47,
    "<|tool_call>": 48,
    "<tool_call|>": 49,
    "<|tool_response>": arch.TOOL_RESPONSE,
    "<tool_response|>": 51,
    "<|think|>": 98,
    "<|channel>": 100,
    "<channel|>": 101,
    "<|turn>": arch.TURN_OPEN,
    "<turn|>": arch.TURN_CLOSE,
    "<|image>": arch.IMAGE_OPEN,
    "<|image|>": arch.IMAGE,
    "<|audio|>": arch.AUDIO,
    "<image|>": arch.IMAGE_CLOSE,
    "<|video|>": arch.VIDEO,
}
FIRST_BYTE = 107  # <0x00>; the 256 byte pieces follow the turn markers
SPACE = "▁"
NAMED = {
    "bos_token": "<bos>",
    "eos_token": "<eos>",
    "mask_token": "<mask>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
}


def learn(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Train on `text`; returns the pieces (alphabet first, then merged, in rank order) and the merges."""
    alphabet = sorted({*string.printable, SPACE} - set(" \t\r\x0b\x0c"))
    trained = Tokenizer(models.BPE())
    # Words keep their leading space; runs of newlines and of spaces are words of their own.
    words = Regex(rf"\n+|{SPACE}{{2,}}|{SPACE}?[^{SPACE}\n]+|{SPACE}")
    trained.pre_tokenizer = pre_tokenizers.Split(words, "isolated")
    pieces = arch.VOCAB - len(SPECIAL) - 256
    trainer = trainers.BpeTrainer(vocab_size=pieces, initial_alphabet=alphabet, show_progress=False)
    trained.train_from_iterator([text.replace(" ", SPACE)], trainer)
    model = json.loads(trained.to_str())["model"]
    vocabulary = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return vocabulary, [tuple(pair) for pair in model["merges"]]


def tokenizer(corpus: str) -> Json:
    """The content of `tokenizer.json`."""
    pieces, merges = learn(corpus)
    ids = dict(SPECIAL) | {f"<0x{byte:02X}>": FIRST_BYTE + byte for byte in range(256)}
    free = [i for i in range(arch.VOCAB) if i not in set(ids.values())]
    ids |= dict(zip(pieces, free, strict=True))
    added = [
        {
            "id": i,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token, i in SPECIAL.items()
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        },
        "post_processor": _beginning(),
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": dict(sorted(ids.items(), key=lambda item: item[1])),
            "merges": [list(pair) for pair in merges],
        },
    }


def _beginning() -> Json:
    """A post-processor that puts `<bos>` before each sequence."""

    def piece(kind: str, name: str, segment: int) -> Json:
        return {kind: {"id": name, "type_id": segment}}

    first = [piece("SpecialToken", "<bos>", 0), piece("Sequence", "A", 0)]
    second = [piece("SpecialToken", "<bos>", 1), piece("Sequence", "B", 1)]
    return {
        "type": "TemplateProcessing",
        "single": first,
        "pair": first + second,
        "special_tokens": {"<bos>": {"id": "<bos>", "ids": [arch.BOS], "tokens": ["<bos>"]}},
    }


def files(folder: Path, template: str = "chat_template.jinja") -> dict[str, bytes]:
    """Every tokenizer file by name, made from the corpus and the template of that name in `folder`."""
    corpus = (folder / "corpus.txt").read_text("utf-8")
    extra = [token for token in SPECIAL if token not in NAMED.values()]
    settings: Json = {
        "clean_up_tokenization_spaces": False,
        "extra_special_tokens": extra,
        "model_max_length": 4096,
        "padding_side": "left",
        "tokenizer_class": "PreTrainedTokenizerFast",
    } | NAMED
    special = {"additional_special_tokens": extra} | NAMED
    return {
        "chat_template.jinja": (folder / template).read_bytes(),
        "special_tokens_map.json": _json(special),
        "tokenizer.json": (json.dumps(tokenizer(corpus), ensure_ascii=False, indent=None) + "\n").encode(),
        "tokenizer_config.json": _json(settings),
    }


def _json(document: Json) -> bytes:
    return (json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode()
