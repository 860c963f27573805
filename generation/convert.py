"""Turns a GGUF file into a folder of bfloat16 safetensors, tokenizer and settings, which loads ten times as fast."""

import errno
from pathlib import Path

from .errors import FetchError, SourceError
from .gguf_file import GgufFacts
from .quiet import quiet_libraries


def convert(packed: Path, folder: Path, facts: GgufFacts) -> None:
    """Write the model in the GGUF file `packed`, inspected before, to the new `folder`.

    Raises FetchError when the library cannot read the file, OSError when the disk is full.
    """
    quiet_libraries()
    from safetensors import SafetensorError

    from .gguf_model import load_gguf

    try:
        network, tokenizer = load_gguf(packed, device="cpu", dtype="bfloat16", num_weights=facts.num_weights)
        if facts.end_token_ids:  # the library reads only the first kind of them
            ids = list(facts.end_token_ids)
            network.generation_config.eos_token_id = ids if len(ids) > 1 else ids[0]
        network.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    except SafetensorError as error:  # the writer's own way of saying that the disk refused
        number = errno.EFBIG if "os error 27" in str(error) else errno.ENOSPC
        raise OSError(number, str(error)) from error
    except SourceError as error:
        raise FetchError(f"The file {packed.name} could not be converted: {error}") from error
