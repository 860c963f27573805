"""How fast the command starts: its help against `import torch`, one token against a plain transformers script."""

import subprocess
import sys
from pathlib import Path

from minigen.generation.compiling import compile_package

from .measure import alternate, default_files, ratio, seconds, show, spread

SCRIPT = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder = {folder!r}
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
ids = tokenizer("The capital of France is", return_tensors="pt")
out = model.generate(**ids, max_new_tokens=1, do_sample=False)
print(tokenizer.decode(out[0, ids["input_ids"].shape[1]:]))
"""


def run(*argv: str) -> float:
    """Give the seconds of a Python process."""
    done = lambda: subprocess.run([sys.executable, *argv], check=True, capture_output=True)  # noqa: E731
    return seconds(done)


def main() -> None:
    """Print the table."""
    files = default_files()
    script = SCRIPT.format(folder=str(Path(files.path)))
    compile_package(files)
    settings = ["-t", "0", "--max-new-tokens", "1", "--device", "cpu", "--no-stdin"]
    one_token = ["-m", "minigen.cli", "run", "The capital of France is", *settings]
    variants = {
        'python -c "import torch"': lambda: run("-c", "import torch"),
        "minigen --help": lambda: run("-m", "minigen.cli", "--help"),
        "ten-line transformers script, one token": lambda: run("-c", script),
        "minigen run --raw --max-new-tokens 1": lambda: run(*one_token, "--raw", "--compile", "never"),
        "the same, compiled": lambda: run(*one_token, "--raw", "--compile", "require"),
        "the same, compiled, in chat mode": lambda: run(*one_token, "--chat", "--compile", "require"),
    }
    found = alternate(variants, rounds=10)
    names = list(variants)
    bases = {names[1]: names[0]} | dict.fromkeys(names[3:], names[2])
    rows = [
        [name, spread(found[name], 2), f"{ratio(found[name], found[bases[name]])}" if name in bases else ""]
        for name in names
    ]
    title = "Start, whole processes (medians of 10 alternating runs)"
    show(title, ["", "seconds", "ratio to import torch, and to the script"], rows)
