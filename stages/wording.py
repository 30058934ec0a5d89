"""Texts to tokenize and conversations to render. Nothing here but declarations."""

TEXTS = (
    "The capital of France is Paris.",
    "",
    " two  spaces,\ttab\nand a newline\n",
    "def f(x):\n    return x ** 2  # square",
    "naïve café — 12,345.67 € 東京 🙂",
    "<bos><|turn>user\nhi<turn|>\n<|turn>model\n",
    "look: <|image|> and <|image><image|>",
    "A sentence that is longer than any limit somebody may have left in a tokenizer. " * 8,
)
CHATS = (
    (("user", "What is the capital of France?"),),
    (("system", "Answer in one word."), ("user", "Sky?"), ("assistant", "Blue."), ("user", "Grass?\n")),
    (("user", "  spaces kept?  "), ("assistant", "yes <turn|>"), ("user", "é🙂")),
)
ANSWERED = (
    (("user", "Sum?"), ("tool", "5 < 6 & \"é🙂\" 'x'"), ("assistant", "ok <channel|> done"), ("user", "Again.\n")),
)
