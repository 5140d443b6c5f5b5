r"""Text as tokenizers need it: valid Unicode without lone surrogates.

JSON can say a lone surrogate (`"\ud800"`) and Python keeps it in a str, but no tokenizer can take
it: byte pair encoding works on UTF-8, which has no form for it. Both tokenizers replace it the same
way, so their ids stay equal.

Must not know any tokenizer.

Spec: docs/sessions.md#tokenizers
"""

from __future__ import annotations


def without_lone_surrogates(text: str) -> str:
    """Join surrogate pairs and replace what is left alone by U+FFFD; other text is unchanged."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
