"""Solution of skip-gram-pairs."""


def skip_gram_pairs(words: list[str], window: int) -> list[tuple[str, str]]:
    """Return (word, context word) for each word and each other word at most `window` places away, in order."""
    pairs = []
    for i, word in enumerate(words):
        before = words[max(0, i - window) : i]
        after = words[i + 1 : i + window + 1]
        pairs += [(word, context) for context in before + after]
    return pairs
