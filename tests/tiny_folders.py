"""A saved random model with a byte tokenizer, for tests of the commands that read texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from stubs import CHAT_TEMPLATE, byte_tokenizer, tiny_model


def tiny_folder(folder: Path, kind: str = "llama", *, bos: bool = False, window: int = 128, **changes: Any) -> Path:
    """Save a random model whose tokens are bytes, `<|bos|>` and `<|end|>`."""
    tiny_model(kind, vocab_size=258, window=window, **changes).save_pretrained(folder)
    byte_tokenizer(bos=bos, chat_template=CHAT_TEMPLATE).save_pretrained(folder)
    return folder


def plain_logprobs(folder: Path, ids: list[int]) -> torch.Tensor:
    """Give what transformers itself says, loaded anew: log-probabilities after each id, (ids, vocab) in float64."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        logprobs: torch.Tensor = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    return logprobs


def without_template(folder: Path) -> Path:
    """Take the chat template from a saved model."""
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config.pop("chat_template", None)
    path.write_text(json.dumps(config))
    return folder
