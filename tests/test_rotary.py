"""Rotary positions in fewer calls: the library's own numbers, and its own function wherever it does more."""

import importlib
from typing import Any

import pytest
import torch
from minigen.generation.rotary import NAME, Quick, is_replaceable, quick_rotary, rotary_rooms, turned
from stubs import tiny_model
from torch import Tensor
from transformers.models.llama import modeling_llama as llama


def states(heads: int, tokens: int, dim: int, *, is_by_token: bool) -> Tensor:
    """Give them as a network does, token by token, or head by head."""
    return torch.randn(1, tokens, heads, dim).transpose(1, 2) if is_by_token else torch.randn(1, heads, tokens, dim)


@pytest.mark.parametrize("is_by_token", [True, False])
@pytest.mark.parametrize(("heads", "tokens", "dim"), [(9, 5, 64), (1, 1, 8), (3, 300, 2)])
def test_states_are_turned_as_the_library_turns_them(heads: int, tokens: int, dim: int, is_by_token: bool) -> None:
    torch.manual_seed(tokens)
    query, key = (states(count, tokens, dim, is_by_token=is_by_token) for count in (heads, 1))
    cos, sin = torch.randn(2, 1, tokens, dim)
    expected = llama.apply_rotary_pos_emb(query, key, cos, sin)
    for given, wanted in zip((turned(query, cos, sin), turned(key, cos, sin)), expected, strict=True):
        assert given.is_contiguous()
        torch.testing.assert_close(given, wanted, rtol=1e-6, atol=1e-6)


def room_of(kind: str) -> Any:
    return importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")


@pytest.mark.parametrize("kind", ["llama", "qwen2", "mistral", "gemma", "phi", "olmoe", "gpt_neox"])
def test_a_room_with_the_usual_function_is_found(kind: str) -> None:
    assert is_replaceable(getattr(room_of(kind), NAME))


@pytest.mark.parametrize("kind", ["cohere", "glm", "ernie4_5", "helium", "gptj"])
def test_a_room_that_turns_other_pairs_is_left_alone(kind: str) -> None:
    assert not is_replaceable(getattr(room_of(kind), NAME, None))


def test_other_devices_and_types_have_no_rooms() -> None:
    assert [room for room, _ in rotary_rooms(tiny_model())] == [llama]
    assert rotary_rooms(tiny_model("gpt2")) == []
    assert rotary_rooms(tiny_model().bfloat16()) == []
    assert rotary_rooms(tiny_model().to("meta")) == []


@pytest.mark.parametrize("error", [None, RuntimeError("no"), KeyboardInterrupt()])
def test_the_library_has_its_own_function_back(error: BaseException | None) -> None:
    before, seen = llama.apply_rotary_pos_emb, None
    try:
        with quick_rotary([(llama, Quick(llama.apply_rotary_pos_emb))]):
            seen = llama.apply_rotary_pos_emb
            if error is not None:
                raise error
    except (RuntimeError, KeyboardInterrupt):
        assert error is not None
    assert seen is not before
    assert llama.apply_rotary_pos_emb is before


@pytest.mark.parametrize("more", [{"unsqueeze_dim": 2}, {}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_whatever_more_is_asked_the_answer_is_the_librarys(more: dict[str, Any], dtype: torch.dtype) -> None:
    query = torch.randn(1, 4, 4, 8).to(dtype)
    cos, sin = torch.randn(2, 1, 4, 8).to(dtype)
    expected = llama.apply_rotary_pos_emb(query, query, cos, sin, **more)
    with torch.inference_mode(), quick_rotary([(llama, Quick(llama.apply_rotary_pos_emb))]):
        given = llama.apply_rotary_pos_emb(query, query, cos, sin, **more)
    torch.testing.assert_close(given, expected, rtol=1e-6, atol=1e-6)


def test_passes_of_several_threads_leave_the_librarys_own_function() -> None:
    """However they overlap: each may begin and end while another is under way."""
    before, network = llama.apply_rotary_pos_emb, tiny_model()
    first, second = quick_rotary(rotary_rooms(network)), None
    with first:
        second = quick_rotary(rotary_rooms(network))  # found while the first is under way
        second.__enter__()
    assert llama.apply_rotary_pos_emb is before
    second.__exit__(None, None, None)
    assert llama.apply_rotary_pos_emb is before


def test_a_network_that_is_trained_meanwhile_has_the_librarys_function() -> None:
    network, ids = tiny_model(), torch.tensor([[5, 6, 7, 8]])
    with quick_rotary(rotary_rooms(network)):
        network(ids, labels=ids).loss.backward()
    assert network.model.layers[0].self_attn.q_proj.weight.grad is not None


def test_a_function_that_turns_a_query_alone_may_still_be_asked_to() -> None:
    def apply(q: Tensor, k: Tensor | None = None, cos: Any = None, sin: Any = None) -> Any:
        return q if k is None else llama.apply_rotary_pos_emb(q, k, cos, sin)

    query = torch.randn(1, 4, 4, 8)
    assert is_replaceable(apply)
    assert Quick(apply)(query, cos=1, sin=1) is query
    assert Quick(apply)(query) is query
