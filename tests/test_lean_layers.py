"""Norms and gated MLPs in fewer passes: the same numbers, and the library's layers where these would differ."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as tf
from minigen.generation.lean_layers import LeanMLP, LeanNorm, make_lean
from minigen.generation.linear import pack_linears
from stubs import tiny_model
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm

FAMILIES = {"llama": (5, 2), "qwen2": (5, 2), "mistral": (5, 2), "gemma": (0, 2), "gpt2": (0, 0)}  # norms and MLPs


def count(network: Any, kind: type) -> int:
    return sum(type(part) is kind for part in network.modules())


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("kind", FAMILIES)
def test_a_lean_network_gives_the_same_logits(kind: str, is_packed: bool) -> None:
    network, ids = tiny_model(kind, vocab_size=64), torch.tensor([[5, 6, 7, 8]])
    with torch.inference_mode():
        before = network(ids).logits
        if is_packed:
            pack_linears(network)
        make_lean(network)
        assert (network(ids).logits - before).abs().max() < 1e-4
    assert (count(network, LeanNorm), count(network, LeanMLP)) == FAMILIES[kind]


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_lean_network_is_saved_whole(kind: str) -> None:
    network = tiny_model(kind, vocab_size=64)
    before = {name: weight.clone() for name, weight in network.state_dict().items()}
    make_lean(network)
    after = network.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], weight) for name, weight in before.items())


@pytest.mark.parametrize(
    "states", [torch.zeros(2, 8), torch.full((1, 2, 8), 1e-20), torch.arange(16.0).view(2, 8) * 1e15]
)
@pytest.mark.parametrize("epsilon", [1e-6, 0.1])
def test_a_lean_norm_is_exact_at_the_edges(states: Tensor, epsilon: float) -> None:
    norm = LlamaRMSNorm(8, epsilon)
    norm.weight.data = torch.linspace(-1, 2, 8)
    with torch.inference_mode():
        torch.testing.assert_close(LeanNorm(norm.weight, epsilon)(states), norm(states), rtol=1e-5, atol=0)


def test_no_tokens_give_none() -> None:
    assert LeanNorm(torch.ones(8), 1e-6)(torch.zeros(1, 0, 8)).shape == (1, 0, 8)


class Shifted(LlamaRMSNorm):
    """A norm with 1 + w, as Gemma has it."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        normed: Tensor = super().forward(hidden_states)
        return normed + normed / self.weight


def doubled(mlp: Any, x: Tensor) -> Tensor:
    return 2 * mlp.down_proj(mlp.act_fn(mlp.gate_proj(x)) * mlp.up_proj(x))


def sparse(mlp: Any, x: Tensor) -> Tensor:
    gate = mlp.gate_proj(x)
    return mlp.down_proj(mlp.act_fn(torch.where(gate > gate.mean(), gate, 0)) * mlp.up_proj(x))


def summed(mlp: Any, x: Tensor) -> Tensor:
    return mlp.down_proj(mlp.act_fn(mlp.gate_proj(x)) + mlp.up_proj(x))


def clamped(mlp: Any, x: Tensor) -> Tensor:
    return mlp.down_proj(mlp.act_fn(mlp.gate_proj(x).clamp(max=100)) * mlp.up_proj(x))


def failing(mlp: Any, x: Tensor) -> Tensor:
    raise RuntimeError("only on Tuesdays")


@pytest.mark.parametrize("formula", [doubled, sparse, summed, clamped, failing])
def test_an_mlp_by_another_formula_stays_as_it_is(formula: Callable[..., Tensor]) -> None:
    class Other(LlamaMLP):
        def forward(self, x: Tensor) -> Tensor:
            return formula(self, x)

    network = nn.Sequential(Other(tf.LlamaConfig(hidden_size=16, intermediate_size=24, num_attention_heads=2)))
    make_lean(network)
    assert type(network[0]) is Other


@pytest.mark.parametrize("hidden_act", ["silu", "gelu_pytorch_tanh", "gelu", "relu2", "linear", "tanh"])
def test_an_mlp_has_any_activation(hidden_act: str) -> None:
    torch.manual_seed(0)
    mlp = LlamaMLP(tf.LlamaConfig(hidden_size=16, intermediate_size=24, num_attention_heads=2, hidden_act=hidden_act))
    network, states = nn.Sequential(mlp), torch.randn(1, 3, 16)
    with torch.inference_mode():
        expected, before = mlp(states), states.clone()
        make_lean(network)
        assert type(network[0]) is LeanMLP
        torch.testing.assert_close(network(states), expected, rtol=1e-6, atol=1e-6)
        assert torch.equal(states, before)


def test_a_norm_by_another_formula_or_type_stays_as_it_is() -> None:
    network = nn.Sequential(Shifted(8), LlamaRMSNorm(8).bfloat16(), nn.LayerNorm(8), LlamaRMSNorm(8))
    make_lean(network)
    assert [type(part) for part in network] == [Shifted, LlamaRMSNorm, nn.LayerNorm, LeanNorm]


class Gated(LlamaRMSNorm):
    """A norm that may be given a gate, as state-space models have it."""

    def forward(self, hidden_states: Tensor, gate: Tensor | None = None) -> Tensor:
        out: Tensor = super().forward(hidden_states if gate is None else hidden_states * gate)
        return out


class GatedMLP(LlamaMLP):
    """An MLP that may be given more than its states."""

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        out: Tensor = super().forward(x) * scale
        return out


def test_a_layer_that_may_be_given_more_stays_as_it_is() -> None:
    mlp = GatedMLP(tf.LlamaConfig(hidden_size=16, intermediate_size=24, num_attention_heads=2))
    network = nn.Sequential(Gated(8), mlp)
    make_lean(network)
    assert [type(part) for part in network] == [Gated, GatedMLP]


@pytest.mark.parametrize("kind", ["mamba2", "bamba", "falcon_h1"])
def test_a_model_with_gated_norms_gives_the_same_logits(kind: str) -> None:
    torch.manual_seed(0)
    config = tf.AutoConfig.for_model(
        kind, vocab_size=64, hidden_size=32, num_hidden_layers=2, num_heads=4, head_dim=16, state_size=8, n_groups=1,
        num_attention_heads=4, num_key_value_heads=2, intermediate_size=48, mamba_n_heads=4, mamba_d_head=16,
        mamba_d_ssm=64, mamba_d_state=8, mamba_n_groups=1, mamba_rms_norm=True, pad_token_id=0, attn_layer_indices=[1],
    )  # fmt: skip
    network: Any = tf.AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.inference_mode():
        before = network(ids).logits
        make_lean(network)
        assert (network(ids).logits - before).abs().max() < 1e-4
