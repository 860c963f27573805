"""Margins: how far one setting could have been turned, the others held, before another token came out.

After the stages that change scores, and top_n_sigma, each of top_k, top_p and min_p keeps a number of leading places,
and the lowest number counts. The draw takes the token at whose place the running share of the probability passes u. As
top_k, top_p or the temperature rises, or min_p falls, more places are kept and the leading ones have less of the whole,
so the place drawn never moves up: the settings that pick a token are one interval.

The bounds are those of real numbers, computed in float64 from the float32 row. The sampler itself rounds to float32,
which blurs a bound by up to about a hundred-thousandth; where that would leave out the setting in force, the bound is
moved to it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from .cutoffs import apply_top_n_sigma
from .leading import Ids
from .leading_places import Kept
from .params import SamplingParams
from .ranges import LEAST_TEMPERATURE, MAX_TEMPERATURE
from .ranking import Ranking, Sums
from .trace import KNOBS, Interval, Margin

NOT_FOLLOWED = ("typical_p", "epsilon_cutoff", "eta_cutoff", "xtc_probability", "mirostat_tau")
CUTS = ("top_k", "top_p", "min_p", *NOT_FOLLOWED)
NEUTRAL = SamplingParams()
DOMAINS: Mapping[str, Interval] = {  # under which a text of no tokens comes out as it did
    "temperature": Interval(low=0.0, high=float(MAX_TEMPERATURE)),
    "top_k": Interval(low=1, high=math.inf),  # or the vocabulary, where it is known
    "top_p": Interval(low=0.0, high=1.0, is_low_closed=False),
    "min_p": Interval(low=0.0, high=1.0),
}


def margins(
    token_id: int, u: float, rows: Sequence[tuple[str, Tensor]], params: SamplingParams, leading: Ids | None = None
) -> dict[str, Margin | None]:
    """Give a Margin for each knob; None where it is not computed.

    rows: `(vocab,)` after each stage, named, the model's own logits first; u: the step's uniform number, for a greedy
    step the one that a temperature would have drawn with; leading: ids of the highest logits, in order, where they are
    at hand. A greedy step skips the filters, so it holds for any of theirs. typical_p, the cutoffs, XTC and mirostat do
    not keep leading places: nothing else is computed with them. Under dynatemp_range there is no one temperature.
    Another engine's order goes by other rules.
    """
    found: dict[str, Margin | None] = dict.fromkeys(KNOBS)
    if params.order != "minigen":
        return found
    vocab, is_greedy, is_still = len(rows[0][1]), params.temperature == 0, params.dynatemp_range == 0
    if is_greedy:
        wide = {**DOMAINS, "top_k": Interval(low=1, high=vocab)}
        found |= {knob: Margin(allowed=wide[knob], picked=wide[knob]) for knob in KNOBS if knob != "temperature"}
    if any(getattr(params, name) != getattr(NEUTRAL, name) for name in NOT_FOLLOWED):
        return found
    if is_greedy:
        row = apply_top_n_sigma(rows[-1][1], params.top_n_sigma)
    else:
        row = _row_before(("temperature", *CUTS) if is_still else CUTS, rows)
    ranking = Ranking(row, leading if row is rows[0][1] else None)
    kept = Kept(ranking, min(params.top_k or vocab, ranking.size), params.top_p, params.min_p)
    place = ranking.rank(token_id)
    if not is_greedy:
        sums = Sums(ranking, max(params.temperature, LEAST_TEMPERATURE) if is_still else 1.0)
        found |= _of_filters(kept, sums, place, u, vocab, params)
    if is_still:
        found["temperature"] = _of_temperature(kept, place, u, params.temperature)
    return found


def narrowed(so_far: Mapping[str, Interval | None], found: Mapping[str, Margin | None]) -> dict[str, Interval | None]:
    """Give the settings under which a text comes out as it did after one more draw; None: not computed."""
    left: dict[str, Interval | None] = {}
    for knob, interval in so_far.items():
        margin = found.get(knob)
        left[knob] = None if interval is None or margin is None else interval & margin.picked
    return left


def _row_before(names: Sequence[str], rows: Sequence[tuple[str, Tensor]]) -> Tensor:
    """Give the row that the first of these stages worked on."""
    place = next((i for i, (name, _) in enumerate(rows) if name in names), len(rows))
    return rows[place - 1][1]


def _of_temperature(kept: Kept, place: int, u: float, setting: float) -> Margin:
    near = max(setting, LEAST_TEMPERATURE) if setting else 1.0
    number = kept.count(near, place)
    allowed = picked = DOMAINS["temperature"]
    if place > 1:
        low, is_low_closed = kept.entry(place, near)
        allowed = replace(allowed, low=low, is_low_closed=is_low_closed)
        low, is_low_closed = kept.passing(place - 1, u, near, number)
        picked = replace(picked, low=low, is_low_closed=is_low_closed)
    high, is_past = kept.passing(place, u, near, number)
    if high <= MAX_TEMPERATURE:
        picked = replace(picked, high=high, is_high_closed=not is_past)
    return _margin(allowed, picked, setting)


def _of_filters(
    kept: Kept, sums: Sums, place: int, u: float, vocab: int, params: SamplingParams
) -> dict[str, Margin | None]:
    """Give the margins of top_k, top_p and min_p.

    `u` draws the place as long as `fewest` places are kept and not `more`. Each filter keeps at least n places up to or
    from one setting on, the others held; that is looked up for n = place, fewest and more.
    """
    fewest, more = place, kept.ranking.size + 1
    if u > 0:
        fewest = max(place, min(sums.reaching(sums.upto(place - 1) / u), kept.ranking.size))
        more = sums.reaching(sums.upto(place) / u)
    least_k = partial(_least_top_k, kept, sums, vocab)
    least_p = partial(_least_top_p, kept, sums)
    most_m = partial(_most_min_p, kept, sums)
    wide_k, wide_p, wide_m = Interval(low=1, high=vocab), DOMAINS["top_p"], DOMAINS["min_p"]
    least_m = most_m(more)
    allowed = {
        "top_k": replace(wide_k, low=least_k(place)),
        "top_p": replace(wide_p, low=least_p(place)),
        "min_p": replace(wide_m, high=most_m(place) or 0.0),
    }
    picked = {
        "top_k": replace(wide_k, low=least_k(fewest), high=least_k(more) - 1),
        "top_p": replace(wide_p, low=least_p(fewest), high=least_p(more)),
        "min_p": Interval(low=least_m or 0.0, high=most_m(fewest) or 0.0, is_low_closed=least_m is None),
    }
    settings = {"top_k": min(params.top_k or vocab, vocab), "top_p": params.top_p, "min_p": params.min_p}
    return {knob: _margin(allowed[knob], picked[knob], setting) for knob, setting in settings.items()}


def _least_top_k(kept: Kept, sums: Sums, vocab: int, count: int) -> int:
    """Give the lowest top_k that keeps `count` places; one above the vocabulary where none does."""
    if count > kept.ranking.size or (kept.min_p > 0 and sums.weight(count) < kept.min_p):
        return vocab + 1
    if kept.top_p >= 1:
        return count
    least = sums.reaching(sums.upto(count - 1) / kept.top_p, is_beyond=True)
    return max(count, least) if least <= kept.ranking.size else vocab + 1


def _least_top_p(kept: Kept, sums: Sums, count: int) -> float:
    """Give the top_p above which `count` places are kept; 1 where none keeps them."""
    if count > kept.most or (kept.min_p > 0 and sums.weight(count) < kept.min_p):
        return 1.0
    return sums.upto(count - 1) / sums.upto(kept.most)


def _most_min_p(kept: Kept, sums: Sums, count: int) -> float | None:
    """Give the highest min_p that keeps `count` places; None where none does."""
    if count > kept.most or (kept.top_p < 1 and sums.upto(count - 1) >= kept.top_p * sums.upto(kept.most)):
        return None
    return sums.weight(count)


def _margin(allowed: Interval, picked: Interval, setting: float) -> Margin:
    """Give a margin that holds the setting in force, whatever was rounded, and picks nothing that is not allowed."""
    allowed = _with(allowed, setting)
    return Margin(allowed=allowed, picked=_with(picked, setting) & allowed)


def _with(interval: Interval, setting: float) -> Interval:
    """Give an interval that holds the setting in force."""
    if setting in interval:
        return interval
    if setting <= interval.low:
        interval = replace(interval, low=setting, is_low_closed=True)
    if setting >= interval.high:
        interval = replace(interval, high=setting, is_high_closed=True)
    return interval
