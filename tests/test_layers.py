"""The rooms: arrows point one way, and light commands stay light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("cli", "presets", "generation")  # an arrow may point to the right only
GATES = {"cache", "gguf_model", "quiet", "weights"}  # the only rooms of the library that may import transformers
FORBIDDEN = {"generation": {"typer", "rich", "yaml", "click"}, "presets": {"typer", "rich", "torch", "transformers"}}


def imports(path: Path) -> set[str]:
    """Give the modules that a file imports, anywhere in it; those of this package as `folder.module`."""
    folder, found = path.parent.name, set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(node.module or "")
        elif isinstance(node, ast.ImportFrom):
            base = [folder] if node.level == 1 else []
            names = [node.module] if node.module else [alias.name for alias in node.names]
            found |= {".".join([*base, str(name)]) for name in names}
    return found


FILES = [path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.py"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_arrows_point_one_way(path: Path) -> None:
    left = FOLDERS[: FOLDERS.index(path.parent.name)]
    roots = {name.split(".")[0] for name in imports(path)}
    assert not roots & set(left)
    assert not roots & FORBIDDEN.get(path.parent.name, set())
    assert "click" not in roots
    assert "minigen" not in roots, "across folders, import relatively"


@pytest.mark.parametrize("path", [p for p in FILES if p.parent.name == "generation"], ids=lambda path: path.stem)
def test_transformers_has_few_gates(path: Path) -> None:
    uses = {name.split(".")[0] for name in imports(path)} & {"transformers"}
    assert not uses or path.stem in GATES


def rank_of(module: str) -> int:
    ranks = [
        {"errors"},
        {"params", "trace", "facts"},
        {"filters"},
        {"sampler", "text", "stops", "decoding"},
        {"cache", "prompt"},
        {"runner", "sequence"},
        {"scheduler"},
        {"engine"},
    ]
    return next((i for i, names in enumerate(ranks) if module in names), -1)


@pytest.mark.parametrize("path", [p for p in FILES if p.parent.name == "generation"], ids=lambda path: path.stem)
def test_inside_the_library_records_are_at_the_bottom(path: Path) -> None:
    mine = rank_of(path.stem)
    for name in imports(path):
        other = rank_of(name.split(".")[1]) if name.startswith("generation.") else -1
        assert mine == -1 or other <= mine, f"{path.stem} imports {name}"


@pytest.mark.parametrize("path", [p for p in FILES if p.parent.name != "cli"], ids=lambda path: path.stem)
def test_the_library_prints_nothing(path: Path) -> None:
    calls = [n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.Call)]
    assert not [c for c in calls if isinstance(c.func, ast.Name) and c.func.id in ("print", "input")]


def test_blind_excepts_stand_in_two_places_only() -> None:
    found = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ExceptHandler) and (
                node.type is None
                or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException"))
            ):
                found.append(f"{path.parent.name}/{path.name}")
    assert sorted(found) == ["cli/app.py", "generation/engine.py"]


LIGHT = [
    ["--help"],
    ["--version"],
    ["run", "--help"],
    ["run", "x", "--no-such-option"],
    ["run", "x", "--temperature", "nan"],
    ["run", "x", "--preset", "no-such-preset"],
    ["presets", "list"],
    ["presets", "show", "smollm2"],
    ["models", "--help"],
]


@pytest.mark.parametrize("argv", LIGHT, ids=" ".join)
def test_light_commands_load_neither_torch_nor_transformers(argv: list[str]) -> None:
    """MOD-14"""
    code = (
        "import sys\nfrom minigen.cli.app import main\n"
        f"sys.argv = ['minigen', *{argv!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)\n"
        "print('heavy:', sorted(heavy), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "heavy: []"


def test_importing_the_library_costs_nothing() -> None:
    code = "import sys, minigen.generation.errors, minigen.generation.params; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_are_all_there() -> None:
    import minigen.generation as library

    for name in library.__all__:
        assert getattr(library, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = library.no_such_name
