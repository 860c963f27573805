"""The last MLP works for the tokens whose logits are asked for, and nobody sees a difference."""

from typing import Any

import pytest
import torch
from minigen.generation import Engine, Model, SamplingParams
from minigen.generation.block_trial import tried_cache
from minigen.generation.last_mlp import kept_alone, last_mlp_of
from stubs import byte_tokenizer, tiny_model
from torch import Tensor, nn


def test_the_last_mlp_is_found() -> None:
    for kind in ("llama", "gpt2", "gemma"):
        network = tiny_model(kind)
        layers = network.transformer.h if kind == "gpt2" else network.model.layers
        assert last_mlp_of(network) is layers[-1].mlp


@pytest.mark.parametrize("kept", [[6], [0], [1, 4, 6]])
def test_kept_tokens_get_what_they_would_get_among_all(kept: list[int]) -> None:
    torch.manual_seed(0)
    mlp, states, seen = nn.Linear(4, 4), torch.randn(1, 7, 4), []
    expected = mlp(states)
    mlp.register_forward_pre_hook(lambda _, given: seen.append(given[0].shape[1]))
    with kept_alone(mlp, torch.tensor(kept), 7):
        given = mlp(states)
    assert given.shape == expected.shape
    torch.testing.assert_close(given[:, kept], expected[:, kept])
    assert int((given != 0).any(-1).sum()) == len(kept)
    torch.testing.assert_close(mlp(states), expected)


class Router(nn.Module):
    """Gives what its tokens chose too."""

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        return states * 2, states.sum(-1)


class Named(nn.Module):
    """Takes more than one thing, or takes it by name."""

    def forward(self, states: Tensor, residual: Tensor | None = None) -> Tensor:
        return states * 2 if residual is None else states + residual


def test_an_mlp_that_gives_more_is_widened_in_its_first_part() -> None:
    states, router = torch.randn(1, 5, 4), Router()
    with kept_alone(router, torch.tensor([4]), 5):
        out, chosen = router(states)
    assert torch.equal(out[:, 4], states[:, 4] * 2)
    assert out.shape == states.shape
    assert chosen.shape == (1, 1)


def test_an_mlp_that_is_called_in_another_way_sees_all_tokens() -> None:
    states, named = torch.randn(1, 5, 4), Named()
    with kept_alone(named, torch.tensor([4]), 5):
        assert torch.equal(named(states=states), states * 2)
        assert torch.equal(named(states, states), states * 2)
        assert torch.equal(named(states, residual=states), states * 2)


@pytest.mark.parametrize(("kept", "tokens"), [(0, 5), (torch.arange(5), 5), (torch.tensor([0]), 1)])
def test_where_all_are_kept_nothing_changes(kept: Any, tokens: int) -> None:
    states, mlp = torch.randn(1, tokens, 4), nn.Linear(4, 4)
    expected = mlp(states)
    with kept_alone(mlp, kept, tokens):
        assert not mlp._forward_hooks
        assert torch.equal(mlp(states), expected)


def test_no_hook_is_left_behind_by_a_pass_that_fails() -> None:
    mlp = nn.Linear(4, 4)
    with pytest.raises(KeyboardInterrupt), kept_alone(mlp, torch.tensor([0]), 3):
        raise KeyboardInterrupt
    assert not mlp._forward_hooks
    assert not mlp._forward_pre_hooks


@pytest.mark.parametrize("name", ["register_forward_pre_hook", "register_forward_hook"])
def test_a_hook_that_an_interrupt_leaves_behind_does_nothing(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    mlp, states = nn.Linear(4, 4), torch.randn(1, 5, 4)
    expected, register = mlp(states), getattr(mlp, name)

    def interrupted(hook: Any, **how: Any) -> None:
        register(hook, **how)
        raise KeyboardInterrupt

    monkeypatch.setattr(mlp, name, interrupted)
    with pytest.raises(KeyboardInterrupt), kept_alone(mlp, torch.tensor([0]), 5):
        pass
    assert len(mlp._forward_hooks) + len(mlp._forward_pre_hooks) == 1
    assert torch.equal(mlp(states), expected)


@pytest.mark.parametrize("kind", ["gpt_oss", "qwen3_moe", "mixtral", "qwen2_moe"])
def test_models_of_experts_run_over_blocks(kind: str) -> None:
    import transformers as tf

    torch.manual_seed(0)
    config = tf.AutoConfig.for_model(
        kind, vocab_size=64, hidden_size=32, intermediate_size=16, moe_intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, num_local_experts=4, num_experts=4,
        num_experts_per_tok=2, shared_expert_intermediate_size=16, initializer_range=0.5, pad_token_id=0,
    )  # fmt: skip
    network: Any = tf.AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    tried_cache(network)


def test_of_a_prompt_the_last_mlp_sees_one_token(monkeypatch: pytest.MonkeyPatch) -> None:
    network, seen = tiny_model(vocab_size=258), []
    forward = network.model.layers[-1].mlp.forward

    def noted(states: Tensor) -> Tensor:
        seen.append(states.shape[1])
        out: Tensor = forward(states)
        return out

    engine = Engine(Model.wrap(network, byte_tokenizer()), max_running=2, step_tokens=8)
    monkeypatch.setattr(network.model.layers[-1].mlp, "forward", noted)
    engine.add_request(list(range(3, 23)), SamplingParams(temperature=0, max_new_tokens=2))
    while engine.has_unfinished_requests():
        engine.step()
    assert seen == [1, 1, 1, 1]  # three chunks, then a token
