"""A tokenizer without transformers: tokenizer.json as the tokenizers library reads it, under the names that are used.

Only for models for which both were found to be the same (`compiling.py`): some classes of transformers change what they
read.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2.exceptions import TemplateError
from tokenizers import AddedToken, Tokenizer

from .chat_template import rendered

TRIED = (  # texts that tell tokenizers apart
    "", " ", "\n", "a", " a", "a ", "  two  spaces  ", "The capital of France is Paris.", "don't won't I'll you've",
    "snake_case camelCase kebab-case", "def f(x):\n    return x ** 2\n", "\ttab\r\nand CR", "3.14159 1,000,000 0x1F",
    "12345678901234567890", "é è ü ß ñ Å", "e\u0301 combined", "日本語と中文 그리고 한국어", "Привет, мир! שלום عالم",
    "🙂👩‍👩‍👧‍👦🏳️‍🌈",
    "\u00a0\u200b\u2028\ufeff", "<s></s><unk><pad>", "<|im_start|>user\nhi<|im_end|>", "[INST] x [/INST] <<SYS>>",
    "<|endoftext|> <|begin_of_text|><|eot_id|>", "\x00\x07\x1b[31m", "…—“”‘’", "a" * 24, "ÀÁÂ" * 20, "x" * 300,
)  # fmt: skip
_CHATS: Sequence[Sequence[Mapping[str, str]]] = (
    [{"role": "user", "content": "Hi <|im_end|> {{ 7 * 7 }}\n"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " Why? "}],
    [
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": "<think>so</think> Two"},
        {"role": "user", "content": "Three"},
    ],
    [{"role": "assistant", "content": "First"}],
)
_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class LightTokenizer:
    """Answers as a fast tokenizer of transformers does, as far as this project asks."""

    is_fast = True

    def __init__(self, folder: Path) -> None:
        """Read a folder's tokenizer. Raises OSError, ValueError or LookupError for files that are not of this kind."""
        try:
            self.backend_tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:
            raise ValueError(str(error)) from error
        self.backend_tokenizer.no_truncation()
        self.backend_tokenizer.no_padding()
        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        self.special_tokens = {name: _text_of(settings[name]) for name in _NAMES if settings.get(name)}
        self.chat_template = _template(folder, settings)

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size(with_added_tokens=True))

    def __call__(
        self, text: str, *, add_special_tokens: bool = True, return_offsets_mapping: bool = False
    ) -> Mapping[str, Any]:
        """Give `input_ids`, and where each token begins and ends in the text, in characters, as `offset_mapping`."""
        found = self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens)
        return {"input_ids": found.ids, "offset_mapping": found.offsets}

    def encode(
        self, text: str, *, add_special_tokens: bool = True, split_special_tokens: bool = False
    ) -> Sequence[int]:
        """Give the ids of a text; with split_special_tokens, special tokens that it spells are ordinary text."""
        core = self.backend_tokenizer
        core.encode_special_tokens = split_special_tokens
        try:
            ids: Sequence[int] = core.encode(text, add_special_tokens=add_special_tokens).ids
        finally:
            core.encode_special_tokens = False
        return ids

    def decode(
        self, ids: Sequence[int], *, skip_special_tokens: bool = False, clean_up_tokenization_spaces: bool = False
    ) -> str:
        """Give the text of ids."""
        text: str = self.backend_tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text

    def convert_ids_to_tokens(self, token_id: int) -> str | None:
        """Give a token as the vocabulary stores it."""
        token: str | None = self.backend_tokenizer.id_to_token(token_id)
        return token

    def get_vocab(self) -> Mapping[str, int]:
        """Give every token with its id."""
        vocab: Mapping[str, int] = self.backend_tokenizer.get_vocab(with_added_tokens=True)
        return vocab

    @property
    def added_tokens_decoder(self) -> Mapping[int, AddedToken]:
        """The tokens beside the vocabulary proper, by id."""
        found: Mapping[int, AddedToken] = self.backend_tokenizer.get_added_tokens_decoder()
        return found

    @property
    def unk_token(self) -> str | None:
        """What stands for unknown text."""
        return self.special_tokens.get("unk_token")

    @property
    def unk_token_id(self) -> int | None:
        """Its id."""
        return self._id_of("unk_token")

    @property
    def eos_token_id(self) -> int | None:
        """The id of the token that ends a text."""
        return self._id_of("eos_token")

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, str]], *, chat_template: str | None = None, **settings: Any
    ) -> str:
        """Give the text that a template makes of messages, ready for an answer."""
        return rendered(chat_template or str(self.chat_template), messages, self.special_tokens)

    def _id_of(self, name: str) -> int | None:
        token = self.special_tokens.get(name)
        found: int | None = None if token is None else self.backend_tokenizer.token_to_id(token)
        return found


def _text_of(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)


def _template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """Give the chat template of a folder: a file of its own, or the one in the settings."""
    path = folder / "chat_template.jinja"
    if path.exists():
        return path.read_text(encoding="utf-8")
    found = settings.get("chat_template")
    if found is not None and not isinstance(found, str):
        raise ValueError("it has several chat templates")
    return found


def is_same(light: LightTokenizer, full: Any) -> bool:
    """Tell whether a tokenizer of transformers answers the same to everything that is tried here."""
    added = [
        {i: (each.content, each.special, each.lstrip, each.rstrip) for i, each in one.added_tokens_decoder.items()}
        for one in (light, full)
    ]
    facts = [
        (len(one), one.unk_token, one.unk_token_id, one.eos_token_id, str(one.chat_template)) for one in (light, full)
    ]
    return (
        added[0] == added[1]
        and facts[0] == facts[1]
        and all(_answers(light, text) == _answers(full, text) for text in TRIED)
        and all(_chat(light, each) == _chat(full, each, tokenize=False, add_generation_prompt=True) for each in _CHATS)
    )


def _answers(tokenizer: Any, text: str) -> list[Any]:
    """Give everything that is asked of a tokenizer about a text."""
    ids = list(tokenizer.encode(text))
    told = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    return [
        ids,
        list(tokenizer.encode(text, add_special_tokens=False)),
        list(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)),
        [tuple(each) for each in told["offset_mapping"]],
        *(
            tokenizer.decode(ids, skip_special_tokens=skips, clean_up_tokenization_spaces=False)
            for skips in (True, False)
        ),
        [tokenizer.convert_ids_to_tokens(token_id) for token_id in ids],
    ]


def _chat(tokenizer: Any, messages: Sequence[Mapping[str, str]], **settings: Any) -> str | None:
    """Give what a template makes of messages; None where it refuses them."""
    if not tokenizer.chat_template:
        return None
    try:
        text: str = tokenizer.apply_chat_template([dict(message) for message in messages], **settings)
    except (TemplateError, TypeError, ValueError, LookupError, AttributeError):
        return None
    return text
