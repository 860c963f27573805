"""What a model's files say about it, as `minigen models show` tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..generation.progress import bytes_text

if TYPE_CHECKING:
    from ..generation.describe import Description


def document_of(facts: Description) -> dict[str, Any]:
    """Give them as JSON has them."""
    return {
        "name": facts.name,
        "path": str(facts.path),
        "revision": facts.revision,
        "architecture": facts.architecture,
        "parameters": facts.num_weights,
        "dtype": facts.dtype,
        "bytes": facts.num_bytes,
        "window": facts.window,
        "vocab_size": facts.vocab_size,
        "end_tokens": [{"id": token.id, "text": token.text} for token in facts.end_tokens],
        "chat_template": facts.has_chat_template,
        "needs_trust_remote_code": facts.needs_own_code,
    }


def lines_of(facts: Description) -> list[tuple[str, ...]]:
    """Give a name and a text for each."""
    ends = ", ".join(f"{token.id} {token.text or '(text unknown)'}" for token in facts.end_tokens)
    return [
        ("name", facts.name),
        ("path", str(facts.path)),
        *([("revision", facts.revision)] if facts.revision else []),
        ("architecture", facts.architecture),
        ("parameters", f"{facts.num_weights:,}"),
        ("dtype", facts.dtype),
        ("on disk", bytes_text(facts.num_bytes)),
        ("window", f"{facts.window} tokens" if facts.window else "unknown"),
        ("vocabulary", f"{facts.vocab_size} tokens" if facts.vocab_size else "unknown"),
        ("end tokens", ends or "none"),
        ("chat template", "yes" if facts.has_chat_template else "no"),
        *([("own code", "needs --trust-remote-code")] if facts.needs_own_code else []),
    ]
