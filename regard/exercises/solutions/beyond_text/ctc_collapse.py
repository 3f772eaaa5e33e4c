"""Solution of ctc-collapse."""


def collapse(frames: str, blank: str) -> str:
    """One letter or blank per frame of sound; return the text."""
    text, before = "", blank
    for letter in frames:
        if letter not in (before, blank):
            text += letter
        before = letter
    return text
