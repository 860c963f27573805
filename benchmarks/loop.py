"""Why the loop without a cache grows slower: the cost of a token after 100, 500 and 1,000 tokens."""

import statistics

from minigen.generation import Engine, Model, SamplingParams, encode_raw, simple_generate

from .measure import alternate, default_model, seconds, show

TOKENS = 4  # new tokens per run


def engine_seconds(model: Model, prompt_ids: list[int]) -> float:
    """Give the seconds of one decode step after a prompt."""
    engine = Engine(model)
    engine.add_request(prompt_ids, SamplingParams(temperature=0, max_new_tokens=TOKENS + 1, ignore_eos=True))
    while not engine.step():  # the prefill
        pass
    return seconds(lambda: [engine.step() for _ in range(TOKENS)]) / TOKENS


def simple_seconds(model: Model, prompt: str) -> float:
    """Give the seconds per token of the plain loop after a prompt."""
    params = SamplingParams(temperature=0, max_new_tokens=TOKENS, ignore_eos=True)
    work = lambda: simple_generate(model.network, model.tokenizer, prompt, sampling_params=params)  # noqa: E731
    return seconds(work) / TOKENS


def main() -> None:
    """Print the table."""
    model = default_model()
    rows = []
    for length in (100, 500, 1000):
        ids = list(encode_raw(model.tokenizer, "The cache keeps what the past has said. " * 200).ids[:length])
        prompt = model.tokenizer.decode(ids)
        found = alternate(
            {
                "simple": lambda prompt=prompt: simple_seconds(model, prompt),
                "engine": lambda ids=ids: engine_seconds(model, ids),
            },
            rounds=5,
        )
        simple, engine = (statistics.median(found[name]) * 1000 for name in ("simple", "engine"))
        rows.append([str(length), f"{simple:.0f}", f"{engine:.0f}", f"{simple / engine:.1f}"])
    columns = ["tokens so far", "simple_generate, ms a token", "Engine, ms a token", "ratio"]
    show("Cost of one more token, greedy, float32 (medians of 5 alternating runs)", columns, rows)
