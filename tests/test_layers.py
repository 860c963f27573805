"""The rooms: arrows point one way, and light commands stay light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("cli", "presets", "generation")  # an arrow may point to the right only
GATES = {
    "block_cache",
    "cache",
    "gguf_model",
    "narrowing",
    "pooled_layer",
    "quiet",
    "step",
    "step_attention",
    "transformers_gate",
}  # the only rooms of the library that may import transformers
FORBIDDEN = {"generation": {"typer", "rich", "yaml", "click"}, "presets": {"typer", "rich", "torch", "transformers"}}


def imports(path: Path, *, lazily: bool = True) -> set[str]:
    """Give the modules that a file imports; those of this package as `folder.module`.

    lazily: also those imported inside a function.
    """
    folder, found = path.parent.name, set()
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree) if lazily else tree.body:
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


RANKS = [  # a module imports from ranks above its own line only, or from its own line
    {"collection", "errors", "progress", "quiet"},
    {"ranges", "orders", "twelve_bits", "pooled_layer", "weight_cost"},
    {"narrow_layers"},
    {"narrowing"},
    {
        "about",
        "params",
        "sampling_defaults",
        "trace",
        "facts",
        "device",
        "stats",
        "stops",
        "safetensors_file",
        "gguf_reader",
        "linear",
        "lean_layers",
        "last_mlp",
        "rotary",
    },
    {"blocks", "plan", "kv_memory", "lazy_network", "tiles", "chat_template", "graphs"},
    {"pools", "light_tokenizer"},
    {"attention", "penalties", "bans", "dry", "words", "weights"},
    {"leading"},
    {"row_probs"},
    {
        "filters",
        "survivors",
        "gguf_file",
        "folder",
        "sources",
        "fetching",
        "store",
        "byte_detokenizers",
        "window_detokenizer",
    },
    {"package_key", "compile_child", "thread_ends"},
    {"packages"},
    {"package", "placed_weights"},
    {"bounds", "unlisted", "engine_filters", "cutoffs", "device_draws"},
    {"ranking", "waterfall"},
    {"leading_places"},
    {"partial_row", "chain", "arrangement", "inspection", "margins", "shortlist"},
    {"sampler", "detokenizer", "hub_client", "wheel_download", "transformers_gate"},
    {"replay", "transfers", "partial_chain", "text", "chat", "pieces", "gguf_model", "hub"},
    {"prompt", "passage", "origins", "cache", "block_cache", "step_attention", "convert", "wheel"},
    {"model", "step", "compiled_code", "runner", "sequence", "installed", "describe", "simple", "tokenizer"},
    {"rows", "scoring", "comparing", "continuations", "requests", "block_tables", "slots"},
    {"block_runner", "scheduler"},
    {"block_trial", "compiled_runner", "graph_runner"},
    {"placement", "compiling", "compile_process"},
    {"engine"},
]


@pytest.mark.parametrize("path", [p for p in FILES if p.parent.name == "generation"], ids=lambda path: path.stem)
def test_inside_the_library_records_are_at_the_bottom(path: Path) -> None:
    if path.stem == "__init__":  # it only names what the others hold
        return
    rank = {name: i for i, names in enumerate(RANKS) for name in names}
    below = {name.split(".")[1] for name in imports(path, lazily=False) if name.startswith("generation.")}
    assert {name for name in below if rank[name] > rank[path.stem]} == set()


@pytest.mark.parametrize("path", [p for p in FILES if p.parent.name != "cli"], ids=lambda path: path.stem)
def test_the_library_prints_nothing(path: Path) -> None:
    calls = [n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.Call)]
    assert not [c for c in calls if isinstance(c.func, ast.Name) and c.func.id in ("print", "input")]


def test_blind_excepts_stand_in_two_files_only() -> None:
    """Others may look at any error, if they raise it again, or one in its place."""
    found = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ExceptHandler) and (
                node.type is None
                or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException"))
            ):
                last = node.body[-1]
                if not isinstance(last, ast.Raise):
                    found.add(f"{path.parent.name}/{path.name}")
    assert found == {"cli/app.py", "generation/engine.py"}


LIGHT = [
    ["--help"],
    ["--version"],
    ["run", "--help"],
    ["run", "x", "--no-such-option"],
    ["run", "x", "--temperature", "nan"],
    ["run", "x", "--preset", "no-such-preset"],
    ["presets", "list"],
    ["presets", "show", "smollm2"],
    ["presets", "export", "smollm2", "--to", "hf"],
    ["models", "--help"],
    ["sweep", "x", "--temperature", "0.5,nan"],
    ["sweep", "x", "--seed", "1,2", "--seeds", "3"],
    ["score", "x", "--min-prob", "0.5"],
    ["diff", "-a", "x", "-b", "y"],
    ["tokens", "x", "--no-such-option"],
    ["replay", "no-such-file"],
    ["report", "no-such-file", "-o", "x.html"],
    ["batch", "--help"],
    ["batch", "no-such-file"],
    ["batch", "no-such-file", "--kv-memory", "much"],
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
    typed = {
        alias.name: str(node.module)
        for node in ast.walk(ast.parse((ROOT / "generation" / "__init__.py").read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for alias in node.names
    }
    assert typed == library._HOMES, "what type checkers see is what there is"
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = library.no_such_name
