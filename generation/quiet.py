"""Keeps the model libraries silent, off the network's side roads, and away from code that a model could bring."""

import logging
import os
import sys
from functools import partial
from typing import Any

# The libraries read these when they are imported. What the user has set stays, but for the last group.
_SETTINGS = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_VERBOSITY": "error",
    "TQDM_DISABLE": "1",  # the GGUF reader's bar obeys nothing else
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_DISABLE_XET": "1",  # that client cannot be held to a time limit
}
_ALWAYS = {
    "HF_HUB_DISABLE_TELEMETRY": "1",  # else a cached model still opens a socket
    "DISABLE_SAFETENSORS_CONVERSION": "1",  # else a service is asked to convert pickle files
    "USE_HUB_KERNELS": "NO",  # else compiled code may be downloaded
}


def quiet_libraries() -> None:
    """Silence transformers and huggingface_hub, and switch off telemetry, conversion requests and kernels.

    Call it before either is imported; called later, it still does what can be done then.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    os.environ.update(_ALWAYS)
    for name in ("torchao", "torch.utils._pytree"):
        logging.getLogger(name).setLevel(logging.ERROR)
    if constants := sys.modules.get("huggingface_hub.constants"):
        constants.HF_HUB_DISABLE_TELEMETRY = True  # type: ignore[attr-defined]  # read again at each request
    if "transformers.utils.logging" in sys.modules:
        library_logging: Any = sys.modules["transformers.utils.logging"]
        library_logging.set_verbosity_error()
        library_logging.disable_progress_bar()


def silence_gguf_bar() -> None:
    """Switch off the progress bar of transformers' GGUF reader, which nothing else does once tqdm is imported."""
    from transformers import modeling_gguf_pytorch_utils

    reader: Any = modeling_gguf_pytorch_utils
    if not isinstance(reader.tqdm, partial):
        reader.tqdm = partial(reader.tqdm, disable=True)
