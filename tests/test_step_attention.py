"""The attention of a compiled step, as plain PyTorch: held against a softmax over the keys that a row sees."""

from types import SimpleNamespace

import pytest
import torch
from minigen.generation.package_key import BLOCK_SIZE
from minigen.generation.step_attention import StepLayer, Tables, attend
from torch import Tensor

ROWS = ((5, [3, 0]), (64, [1, 2]), (140, [4, 2, 5]), (127, [6, 1]))  # the last position of each, and its blocks


def expected(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    position: int,
    *,
    softcap: float | None,
    window: int | None,
    sinks: Tensor | None,
) -> Tensor:
    """query: (heads, dim), scaled; keys, values: (key heads, tokens, dim). Gives (heads, dim), in float64."""
    first = 0 if window is None else max(0, position - window + 1)
    queries = query.shape[0] // keys.shape[0]
    seen, told = (each[:, first : position + 1].double().repeat_interleave(queries, 0) for each in (keys, values))
    scores = (seen @ query.double()[..., None])[..., 0]
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[:, None]], 1)
    weights = scores.softmax(-1)[:, : told.shape[1]]
    return (weights[:, None] @ told)[:, 0]


@pytest.mark.parametrize("dim", [8, 32, 64, 80, 128])
@pytest.mark.parametrize(("groups", "queries"), [(4, 1), (3, 3), (1, 5), (2, 8), (1, 7), (1, 11), (2, 12)])
@pytest.mark.parametrize("kind", ["plain", "softcap", "window", "sinks"])
def test_a_row_weighs_the_keys_that_it_sees(groups: int, queries: int, dim: int, kind: str) -> None:
    torch.manual_seed(groups * 100 + queries * 10 + dim)
    keys, values = torch.randn(7, groups, dim, BLOCK_SIZE), torch.randn(7, groups, BLOCK_SIZE, dim)
    keys[0], values[0] = 0, 0
    window, softcap = (30 if kind == "window" else None), (2.0 if kind == "softcap" else None)
    sinks = torch.randn(groups * queries) if kind == "sinks" else None
    positions = torch.tensor([position for position, _ in ROWS])
    tables = torch.tensor([[*blocks, 0, 0][:3] for _, blocks in ROWS])
    nothing = torch.zeros(groups, len(ROWS), dtype=torch.long)
    layer = StepLayer(keys, values, nothing, nothing, window)
    query = torch.randn(1, groups * queries, len(ROWS), dim)
    found, _ = attend(
        SimpleNamespace(layer_idx=0),
        query,
        keys[:1],
        values[:1],
        None,
        layers=[layer],
        tables=Tables(tables, positions),
        softcap=softcap,
        sliding_window=window,
        s_aux=sinks,
    )
    assert found.shape == (1, len(ROWS), groups * queries, dim)
    for row, (position, blocks) in enumerate(ROWS):
        each_key = torch.cat([keys[block].transpose(1, 2) for block in blocks], 1)
        each_value = torch.cat([values[block] for block in blocks], 1)
        scaled = query[0, :, row] * dim**-0.5
        wanted = expected(scaled, each_key, each_value, position, softcap=softcap, window=window, sinks=sinks)
        torch.testing.assert_close(found[0, row].double(), wanted, rtol=1e-5, atol=1e-5)
