"""A preset in the form of another tool, with what has no counterpart there and what differs in effect."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .counterparts import Handover
from .export_hf import write_generation_config
from .export_llama_cpp import write_flags
from .export_ollama import write_modelfile
from .export_vllm import write_request
from .preset import Preset

Tool = Literal["hf", "vllm", "llama.cpp", "ollama"]


@dataclass(frozen=True, slots=True)
class Export:
    """A preset in another tool's form, and in sentences what that form cannot say or would do otherwise."""

    text: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Form:
    name: str  # of what is written
    write: Callable[[Handover], str]
    has_comments: bool


_FORMS: dict[Tool, _Form] = {
    "hf": _Form("transformers' generation_config.json", write_generation_config, has_comments=False),
    "vllm": _Form("vLLM's request body", write_request, has_comments=False),
    "llama.cpp": _Form("llama.cpp's flags", write_flags, has_comments=True),
    "ollama": _Form("ollama's Modelfile", write_modelfile, has_comments=True),
}


def export(preset: Preset, tool: Tool) -> Export:
    """Write a preset's settings, merged over its parents, in the form of another tool.

    Every neutral value is written too where the tool's own default, or the model's, would filter.
    """
    form, handover = _FORMS[tool], Handover(preset)
    text = form.write(handover)
    leftovers = handover.leftovers()
    missing = [f"No counterpart in {form.name}: {', '.join(leftovers)}."] if leftovers else []
    notes = (*missing, *dict.fromkeys(handover.notes))
    if form.has_comments:
        head = [f"minigen's preset {preset.name} as {form.name}", *notes]
        text = "".join(f"# {_one_line(line)}\n" for line in head) + text
    return Export(text, notes)


def _one_line(text: str) -> str:
    """Give a comment that ends with its line and steers no terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
