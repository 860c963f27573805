"""Packed linear layers: the same product, and the layers as they were where it cannot be had."""

from typing import Any

import pytest
import torch
from minigen.generation import linear
from minigen.generation.linear import PackedLinear, can_pack, pack_linears
from stubs import tiny_model
from torch import nn


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 2, 16, 300])
def test_a_packed_layer_gives_the_product_of_the_plain_one(dtype: torch.dtype, bias: bool, rows: int) -> None:
    if not can_pack(dtype):
        pytest.skip(f"{dtype} cannot be packed here")
    torch.manual_seed(0)
    plain = nn.Linear(96, 40, bias=bias).to(dtype).requires_grad_(False)
    states = torch.randn(1, rows, 96).to(dtype)
    packed = PackedLinear(plain)
    expected = plain(states)
    assert packed(states).shape == expected.shape
    apart = (packed(states) - expected).abs().max()
    assert apart <= (1e-5 if dtype is torch.float32 else 0.03) * expected.abs().max()
    assert torch.equal(packed.weight, plain.weight), "for models that look at it"


def test_no_rows_give_no_rows() -> None:
    if not can_pack(torch.float32):
        pytest.skip("nothing can be packed here")
    assert PackedLinear(nn.Linear(16, 8))(torch.zeros(1, 0, 16)).shape == (1, 0, 8)


def test_a_packed_network_gives_the_same_logits() -> None:
    network, ids = tiny_model(vocab_size=64), torch.tensor([[5, 6, 7, 8]])
    with torch.inference_mode():
        before = network(ids).logits
        pack_linears(network)
        assert (network(ids).logits - before).abs().max() < 1e-4
    assert not can_pack(torch.float32) or any(isinstance(part, PackedLinear) for part in network.modules())


def test_a_packed_network_is_saved_whole() -> None:
    network = tiny_model("qwen2", vocab_size=64)
    before = {name: weight.clone() for name, weight in network.state_dict().items()}
    pack_linears(network)
    after = network.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], weight) for name, weight in before.items())


def test_a_model_that_computes_with_its_weights_itself_runs_packed_too() -> None:
    import transformers as tf

    torch.manual_seed(0)
    config = tf.MambaConfig(vocab_size=64, hidden_size=16, state_size=4, num_hidden_layers=2)
    network, ids = tf.MambaForCausalLM(config).eval().requires_grad_(False), torch.tensor([[5, 6, 7, 8]])
    with torch.inference_mode():
        before = network(ids).logits
        pack_linears(network)
        assert (network(ids).logits - before).abs().max() < 1e-4


@pytest.mark.parametrize("error", [AttributeError("no such operator"), RuntimeError("not on this machine")])
def test_where_packing_fails_a_network_stays_as_it_is(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*args: Any) -> Any:
        raise error

    monkeypatch.setattr(linear.PackedLinear, "__init__", fail)
    network = tiny_model(vocab_size=64)
    pack_linears(network)
    assert type(network.lm_head) is nn.Linear


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_other_types_stay_as_they_are(dtype: torch.dtype) -> None:
    network = tiny_model(vocab_size=64).to(dtype)
    pack_linears(network)
    assert type(network.lm_head) is nn.Linear
