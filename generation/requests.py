"""Requests: what a caller may ask of a model, checked and turned into sequences."""

from collections.abc import Iterable, Mapping, Sequence as SequenceOf
from dataclasses import replace
from typing import Any

from .errors import ParameterError
from .model import Model
from .params import TOKEN_IDS, SamplingParams
from .prompt import Prompt, check_room, encode_raw
from .ranges import as_number
from .sampler import Sampler
from .sequence import Sequence
from .text import TextStream
from .trace import Inspection
from .words import Words, words_for


class Requests:
    """Makes the sequences of requests to one model."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._last_words: tuple[SamplingParams, Words] | None = None  # samples of a run differ by their seed alone

    def sequence(
        self, prompt: str | SequenceOf[int] | Prompt, params: SamplingParams, request_id: str, inspection: Inspection
    ) -> Sequence:
        """Give the sequence of a request.

        Raises PromptError for an empty prompt or one that leaves no room in the window, ParameterError for ids outside
        the vocabulary and for a bad word without tokens.
        """
        model = self._model
        prompt = encode_raw(model.tokenizer, prompt) if isinstance(prompt, str) else prompt
        if not isinstance(prompt, Prompt):
            ids = self._checked_ids("prompt", _listed(prompt))
            prompt = Prompt(ids, context_ids=ids)
        check_room(len(prompt.ids), model.window)
        prompt_ids = self._checked_ids("prompt", prompt.ids)
        self._checked_ids("logit_bias", params.logit_bias)
        for name in TOKEN_IDS:
            self._checked_ids(name, getattr(params, name))
        end_ids = (*model.end_token_ids, *params.end_token_ids)
        return Sequence(
            request_id=request_id,
            prompt_ids=prompt_ids,
            params=params,
            sampler=Sampler(params, prompt_ids=prompt_ids, words=self.words_of(params), inspection=inspection),
            text=TextStream(model.tokenizer, prompt.context_ids, params.stop),
            end_token_ids=frozenset(() if params.ignore_eos else end_ids),
            window=model.window,
        )

    def words_of(self, params: SamplingParams) -> Words:
        """Give the token ids for which texts and names in `params` stand with this model's tokenizer."""
        seedless = replace(params, seed=None)
        if self._last_words is None or self._last_words[0] != seedless:
            end_ids = (*self._model.end_token_ids, *params.end_token_ids)
            self._last_words = seedless, words_for(params, self._model.tokenizer, end_ids)
        return self._last_words[1]

    def _checked_ids(self, name: str, ids: Iterable[Any]) -> tuple[int, ...]:
        """Give ids of any library's whole numbers as Python's own; ParameterError for one that is not a token's."""
        checked = []
        for token_id in ids:
            number = token_id if type(token_id) is int else as_number(int, token_id)
            if not 0 <= number < self._model.vocab_size:
                raise ParameterError(name, token_id, f"token ids from 0 to {self._model.vocab_size - 1}")
            checked.append(int(number))
        return tuple(checked)


def _listed(prompt: Any) -> Iterable[Any]:
    """Give the ids of a list, an array or a tensor one by one."""
    if isinstance(prompt, bytes | Mapping) or not hasattr(prompt, "__iter__"):
        raise ParameterError("prompt", prompt, "a text, token ids or a Prompt")
    ids: Iterable[Any] = prompt.tolist() if hasattr(prompt, "tolist") else prompt
    return ids
