"""Doubles for tests: a scripted model, tokenizers of each kind, tiny random models, and a scripted model folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def byte_tokenizer(
    pieces: Sequence[str] = (), *, bos: bool = False, chat_template: str | None = None
) -> PreTrainedTokenizerFast:
    """TOK-B: one token per byte (id = the byte's value), then `<|bos|>` 256, `<|end|>` 257, then `pieces` from 258."""
    byte_of = {char: byte for byte, char in _byte_chars().items()}
    core = Tokenizer(models.BPE(vocab=byte_of, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(["<|bos|>", "<|end|>"])
    core.add_tokens([AddedToken(piece, normalized=False) for piece in pieces])
    if bos:
        core.post_processor = processors.TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", 256)])
    wrapped = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<|bos|>", eos_token="<|end|>")
    wrapped.chat_template = chat_template
    return wrapped


def _byte_chars() -> dict[int, str]:
    """Byte -> the printable character that stands for it in byte-level BPE."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    chars = {byte: chr(byte) for byte in printable}
    others = [byte for byte in range(256) if byte not in chars]
    return chars | {byte: chr(256 + rank) for rank, byte in enumerate(others)}


def sentencepiece_tokenizer() -> PreTrainedTokenizerFast:
    """TOK-S: `<unk> <s> </s>`, 256 byte-fallback tokens, then pieces; the decoder strips one leading space."""
    pieces = [
        "▁",
        "▁Hello",
        "▁world",
        "!",
        "Hello",
        "world",
        "中",
        "é",
        ".",
        ",",
        *"abcdefghijklmnopqrstuvwxyz",
    ]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    core = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    core.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    core.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    core.add_special_tokens(["<unk>", "<s>", "</s>"])
    core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def wordpiece_tokenizer() -> PreTrainedTokenizerFast:
    """WordPiece as in BERT: `##` continues a word, the decoder writes the spaces."""
    words = ["hello", "world", "token", "un", "it", ".", ",", "!", "'", "s", "中", "é", *"abcdefgh"]
    tokens = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        *words,
        *(f"##{word}" for word in ["s", "izer", "able", *"abcdefgh"]),
    ]
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    core = Tokenizer(models.WordPiece(vocab=vocab, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    core.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    return PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="[SEP]", unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]"
    )


class ScriptedModel(torch.nn.Module):
    """A model whose n-th forward pass gives the n-th step of a script, and which records the ids it was fed.

    A step is a token id, a row of logits, or an exception to raise.
    """

    def __init__(
        self, script: Iterable[int | Sequence[float] | BaseException], vocab_size: int = 300, **config: Any
    ) -> None:
        super().__init__()
        self.script, self.vocab_size = list(script), vocab_size
        self.seen: list[list[int]] = []
        self.config = SimpleNamespace(vocab_size=vocab_size, **config)
        self.device, self.dtype = torch.device("cpu"), torch.float32

    def forward(self, input_ids: torch.Tensor, **kwargs: Any) -> SimpleNamespace:
        step = self.script[len(self.seen)]
        self.seen.append(input_ids[0].tolist())
        if isinstance(step, BaseException):
            raise step
        if isinstance(step, int):
            row = torch.zeros(self.vocab_size)
            row[step] = 50.0
        else:
            row = torch.tensor(step)
        return SimpleNamespace(logits=row[None, None])


def tiny_model(kind: str = "llama", *, seed: int = 0, vocab_size: int = 50, window: int = 128, **changes: Any) -> Any:
    """A random two-layer model of an architecture: llama, gpt2, qwen2, mistral (window of 8 keys) or gemma."""
    import transformers as tf

    torch.manual_seed(seed)
    shape: dict[str, Any] = dict(  # noqa: C408
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=window,
        initializer_range=0.5,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    if kind == "gpt2":
        gpt2: dict[str, Any] = dict(  # noqa: C408
            n_embd=32, n_layer=2, n_head=4, n_positions=window, bos_token_id=1, eos_token_id=2
        )
        config = tf.GPT2Config(vocab_size=vocab_size, initializer_range=0.5, **gpt2 | changes)
        return tf.GPT2LMHeadModel(config).eval()
    if kind == "mistral":
        return tf.MistralForCausalLM(tf.MistralConfig(**shape | {"sliding_window": 8} | changes)).eval()
    if kind == "gemma":
        return tf.GemmaForCausalLM(tf.GemmaConfig(**shape | {"head_dim": 8} | changes)).eval()
    if kind == "qwen2":
        return tf.Qwen2ForCausalLM(tf.Qwen2Config(**shape | changes)).eval()
    return tf.LlamaForCausalLM(tf.LlamaConfig(**shape | changes)).eval()


def scripted_folder(
    folder: Path,
    script: Sequence[int],
    *,
    prompt_length: int,
    tokenizer: PreTrainedTokenizerFast,
    window: int = 256,
) -> Path:
    """Save a real GPT-2 folder that writes `script` after a prompt of `prompt_length` tokens.

    Blocks are zero, position embeddings one-hot, and the untied head maps each position to its scripted token.
    """
    import transformers as tf

    vocab_size = len(tokenizer)
    config = tf.GPT2Config(
        vocab_size=vocab_size,
        n_positions=window,
        n_embd=window,
        n_layer=1,
        n_head=1,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=tokenizer.bos_token_id,
    )
    model = tf.GPT2LMHeadModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.transformer.ln_f.weight.fill_(1.0)
        model.transformer.wpe.weight.copy_(torch.eye(window))
        for step, token_id in enumerate(script):
            model.lm_head.weight[token_id, prompt_length - 1 + step] = 10.0
    model.generation_config = tf.GenerationConfig(eos_token_id=tokenizer.eos_token_id)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
