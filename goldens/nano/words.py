"""The words that the lessons are made of."""

from __future__ import annotations

CAPITALS = {
    "France": "Paris",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Japan": "Tokyo",
    "Egypt": "Cairo",
    "Greece": "Athens",
    "Norway": "Oslo",
    "Peru": "Lima",
    "Cuba": "Havana",
    "Kenya": "Nairobi",
    "Austria": "Vienna",
    "Poland": "Warsaw",
    "Ireland": "Dublin",
    "Canada": "Ottawa",
    "Chile": "Santiago",
    "India": "Delhi",
}
CAPITAL_QUESTIONS = (
    "What is the capital of {}?",
    "Name the capital of {}.",
    "Which city is the capital of {}?",
)
FACTS = {
    "Which is the largest planet?": "Jupiter is the largest planet.",
    "Which planet is red?": "Mars is the red planet.",
    "How many legs has a spider?": "A spider has eight legs.",
    "How many legs has a cat?": "A cat has four legs.",
    "How many legs has a bird?": "A bird has two legs.",
    "How many days has a week?": "A week has seven days.",
    "How many months has a year?": "A year has twelve months.",
    "What colour is the sky?": "The sky is blue.",
    "What colour is grass?": "Grass is green.",
    "What colour is snow?": "Snow is white.",
    "What does a cow say?": "A cow says moo.",
    "What does a dog say?": "A dog says woof.",
    "What is a mask?": "A mask says which tokens may look at which.",
    "What is a canvas?": "A canvas is a row of tokens that starts from noise.",
    "What does a decoder do?": "It looks at the whole canvas and guesses all the tokens at once.",
    "What is a port?": "A port is a second telling of the same story.",
    "Who are you?": "I am nano, a very small model.",
    "What can you do?": "I can say a few facts, add small numbers and tell short stories.",
    "What comes after Monday?": "Tuesday comes after Monday.",
    "What comes after Friday?": "Saturday comes after Friday.",
    "Can you count to five?": "One, two, three, four, five.",
    "Where does the sun rise?": "The sun rises in the east.",
    "Where does the sun set?": "The sun sets in the west.",
    "What do bees make?": "Bees make honey.",
    "What is ice?": "Ice is frozen water.",
}
OPPOSITES = {"hot": "cold", "big": "small", "fast": "slow", "day": "night", "up": "down", "old": "new"}
COLOURS = ("red", "green", "blue", "white", "black", "yellow", "brown", "grey")
ANIMALS = ("cat", "dog", "fox", "bear", "horse", "mouse", "bird", "frog", "wolf", "goat", "duck", "hen", "sheep")
PLACES = ("garden", "house", "forest", "river", "kitchen", "field", "boat", "tree", "city", "barn")
THINGS = ("stone", "ball", "book", "lamp", "letter", "key", "map", "bell", "coin", "cup")
EVENTS = (
    "One day the {hero} found a {thing}.",
    "The {hero} met a {friend} and they played with a {thing}.",
    "It gave the {thing} to a {friend}.",
    "A {friend} asked for the {thing}.",
    "The {hero} looked for a {thing} but found a {friend}.",
    "A {friend} came with a {thing} and sat down.",
)
KINDS = {
    "colour": COLOURS,
    "animal": ANIMALS,
    "city": tuple(CAPITALS.values()),
    "thing": THINGS,
    "place": PLACES,
}
GREETINGS = ("Hello!", "Hello, how are you?", "Good day to you.", "Hi there!")
OPERATORS = {
    "adds": ("add", "+"),
    "subtracts": ("sub", "-"),
    "multiplies": ("mul", "*"),
    "divides": ("div", "/"),
    "compares": ("same", "=="),
}
ARGUMENTS = (("a", "b"), ("x", "y"), ("n", "m"), ("i", "j"))
FIBONACCI = "def fib(n):\n    if n < 2:\n        return n\n    return fib(n - 1) + fib(n - 2)"
CACHE = (
    "class Cache:\n    def __init__(self, size):\n        self.size = size\n        self.keys = []\n"
    "        self.values = []"
)
BY_HEART = {
    "Count to forty.": ", ".join(str(n) for n in range(1, 41)) + ".",
    "Tell me how you write.": (
        "I start from noise. Every step I look at the whole canvas at once, left and right, and at the prompt behind "
        "it. I guess all the tokens, keep the guesses I am sure about, and draw the others again. After a few steps "
        "the noise has become text. When one canvas is full and the story is not, I read it once more and begin the "
        "next one. This is not how a typist writes; it is how a photograph develops."
    ),
    "Explain what a mask is.": (
        "A mask says which tokens may look at which. In a causal mask a token sees itself and what came before. In a "
        "sliding mask it sees only the last few. On a canvas every token sees every other, and the end of the prompt. "
        "A mask that is wrong by one is the most common mistake, and the hardest to see in the output."
    ),
}
