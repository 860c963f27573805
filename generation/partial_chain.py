"""Settling a draw on a row that is known in part: the chain runs on bounds until it is certain which tokens are left.

From there on the sampler's own filters run on those, so that the answer is the sampler's, bit for bit.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .bounds import (
    ROUNDING,
    Bounds,
    Undecidable,
    case_of,
    entropy,
    keep_above,
    keep_count,
    keep_likely,
    keep_mass,
    pick_rank,
)
from .chain import Filter, NamedFilter
from .orders import VLLM_LEAST_TEMPERATURE
from .params import SamplingParams
from .partial_row import Known
from .ranges import LEAST_TEMPERATURE
from .sampler import pick

_FAR = 100.0  # what lies this far below the highest score has no weight in float32
_ULP = 2.4e-7  # what a few roundings to float32 are worth, relative


class Settling:
    """One row on its way through the chain.

    coin: XTC acts where this is below its probability; limit: mirostat's, in bits.
    """

    def __init__(self, known: Known, params: SamplingParams, *, vocab_size: int, coin: float, limit: float) -> None:
        self._known, self._params, self._vocab_size = known, params, vocab_size
        self._coin, self._limit = coin, limit
        self._ids, self._scores = known.ids, known.scores  # (head,)
        self._tail = known.tail.below(float(known.scores[0]))
        self._is_blurred = False  # the scores are not the sampler's own any more
        self._num_dropped = 0  # from the beginning, by XTC
        self._bounds = self._uncut = self._at(1.0, 1.0, ROUNDING)
        self._passes: dict[str, Callable[[], None]] = {
            "top_n_sigma": self._top_n_sigma,
            "dynatemp_range": self._dynatemp,
            "top_k": self._top_k,
            "top_p": self._top_p,
            "min_p": self._min_p,
            "epsilon_cutoff": self._epsilon_cutoff,
            "eta_cutoff": self._eta_cutoff,
            "xtc_probability": self._xtc,
            "mirostat_tau": self._mirostat,
        }
        if params.order == "mlx":
            del self._passes["xtc_probability"]  # it spares some tokens there

    def settle(self, stages: Sequence[NamedFilter], u: float) -> tuple[int, Tensor | None]:
        """Run the chain and draw a token; give also what it was drawn from, `(vocab,)`, where that is known exactly.

        Raises Undecidable where what is known does not settle the draw.
        """
        for place, (name, apply) in enumerate(stages):
            if self._is_exact:
                return self._drawn(stages[place:], u)
            if name not in ("temperature", *self._passes):
                raise Undecidable(f"{name} goes by tokens that the trace does not keep")
            if name in ("temperature", "dynatemp_range") and self._bounds is not self._uncut:
                raise Undecidable("the temperature comes after filters that leave tokens which the trace does not keep")
            if name == "temperature":
                self._temperature(apply)
            else:
                self._passes[name]()
            if self._params.order != "minigen":
                self._check_edges()
        if self._is_exact:
            return self._drawn((), u)
        rank = pick_rank(self._bounds, u, num_dropped=self._num_dropped)
        if self._is_blurred and not self._stands_alone(rank):
            raise Undecidable("two tokens are too much alike to tell which comes first")
        return int(self._ids[rank]), None

    @property
    def _is_exact(self) -> bool:
        return self._bounds.is_exact and not self._is_blurred and not self._num_dropped

    def _check_edges(self) -> None:
        """Refuse a filter's edge between tokens that tie, which engines treat differently; the rest is the same."""
        for case in (self._bounds.least, self._bounds.most):
            before, *after = self._scores[case.num_left - 1 : case.num_left + 1].tolist()
            if case.rest == 0 and after in ([], [before]):
                raise Undecidable(f"order {self._params.order} has its own rule for tokens that tie")

    def _drawn(self, stages: Sequence[NamedFilter], u: float) -> tuple[int, Tensor]:
        """Run the rest of the chain on what is left, as the sampler does."""
        row, count = torch.full((self._vocab_size,), -math.inf), self._bounds.most.num_left
        row[self._ids[:count]] = self._scores[:count]
        for _, apply in stages:
            row = apply(row)
        probs = row.softmax(-1)
        return pick(row, probs, u), probs

    def _top_n_sigma(self) -> None:
        if self._known.deviation is None or not math.isfinite(self._known.deviation):
            raise Undecidable("top_n_sigma goes by the spread of all scores, and other settings have changed some")
        reach = self._params.top_n_sigma * self._known.deviation
        slack = ROUNDING * (1 + reach)
        self._bounds = keep_above(self._bounds, math.exp(-reach - slack), math.exp(-reach + slack))
        self._uncut, self._tail = self._bounds, self._tail.cut(-reach - slack, -reach + slack)
        if self._bounds.least.num_left < self._bounds.most.num_left:
            raise Undecidable("a token lies on the edge of top_n_sigma")

    def _temperature(self, apply: Filter) -> None:
        """Divide as the sampler does. That can make two scores equal, and then the lower id comes first."""
        highest = self._known.scores[0]
        peak = torch.tensor([min(float(highest) + self._tail.peak, float(highest))], dtype=torch.float32)
        scaled = apply(torch.cat([self._scores, peak]))
        scores, scaled_peak, order = scaled[:-1], scaled[-1], self._ids.argsort()
        order = order[scores[order].sort(descending=True, stable=True).indices]
        ids, scores, raw = self._ids[order], scores[order], self._scores[order]
        is_head = (scores > scaled_peak) | (self._tail.count == 0)
        if not bool(is_head[0]):
            raise Undecidable("a token that the trace does not keep may be the likeliest")
        self._tail = self._tail.joined(raw[~is_head].double() - float(highest))
        self._ids, self._scores = ids[is_head], scores[is_head]
        temperature = max(
            self._params.temperature, VLLM_LEAST_TEMPERATURE if self._params.order == "vllm" else LEAST_TEMPERATURE
        )
        slack = ROUNDING + _ULP * (abs(float(scores[0])) + _FAR)
        self._bounds = self._at(temperature, temperature, slack, float(scaled_peak - scores[0]))

    def _dynatemp(self) -> None:
        params, bounds = self._params, self._bounds
        low, high = entropy(bounds)
        fewest = max(2, bounds.least.num_left + self._tail.least_count)
        most = max(2, bounds.most.num_left + bounds.tail_count)
        shares = low / math.log(most), high / math.log(fewest)
        base, top = max(0.0, params.temperature - params.dynatemp_range), params.temperature + params.dynatemp_range
        cold, hot = (base + (top - base) * min(max(share, 0.0), 1.0) ** params.dynatemp_exponent for share in shares)
        cold, hot = max(cold * (1 - ROUNDING), LEAST_TEMPERATURE), max(hot * (1 + ROUNDING), LEAST_TEMPERATURE)
        self._bounds = self._at(cold, hot, ROUNDING + _ULP * (abs(float(self._scores[0])) / cold + _FAR))
        self._is_blurred = True

    def _at(self, cold: float, hot: float, slack: float, peak: float | None = None) -> Bounds:
        """Give the bounds at a temperature between two.

        slack: what rounding is worth in the tail, relative; peak: its highest score, where the scores are those at
        this temperature.
        """
        gaps = self._scores.double() - float(self._scores[0])
        least, most = self._tail.bounds_at(1 / cold)[0], self._tail.bounds_at(1 / hot)[1]
        least, most = math.exp(min(least, _FAR)) * max(0.0, 1 - slack), math.exp(min(most, _FAR)) * (1 + slack)
        return Bounds(
            least=case_of((gaps / cold if peak is None else gaps).exp(), least),
            most=case_of((gaps / hot if peak is None else gaps).exp(), most),
            tail_count=self._tail.count,
            peak=math.exp(min(0.0, self._tail.peak / hot if peak is None else peak)),
            slack=slack if cold < hot else ROUNDING,
            is_blurred=cold < hot,
        )

    def _stands_alone(self, rank: int) -> bool:
        """Whether no rounding can make a token's score equal to another one, unless it is."""
        scores, own = self._scores, self._scores[rank]
        return not bool(((scores != own) & ((scores - own).abs() <= _ULP * own.abs())).any())

    def _top_k(self) -> None:
        self._bounds = keep_count(self._bounds, self._params.top_k)

    def _top_p(self) -> None:
        self._bounds = keep_mass(self._bounds, self._params.top_p)

    def _min_p(self) -> None:
        self._bounds = keep_above(self._bounds, self._params.min_p, self._params.min_p)

    def _epsilon_cutoff(self) -> None:
        self._bounds = keep_likely(self._bounds, self._params.epsilon_cutoff, self._params.epsilon_cutoff, always=1.0)

    def _eta_cutoff(self) -> None:
        epsilon = self._params.eta_cutoff
        low, high = entropy(self._bounds)
        etas = [min(epsilon, math.sqrt(epsilon) * math.exp(-bound)) for bound in (high, low)]
        self._bounds = keep_likely(self._bounds, *etas, always=1.0)

    def _xtc(self) -> None:
        """Count the likely tokens; all but the last of them go."""
        threshold = self._params.xtc_threshold
        if self._coin >= self._params.xtc_probability or threshold > 0.5:
            return
        marked = keep_likely(self._bounds, threshold, threshold)  # and the likeliest, likely or not
        if marked.most.rest > 0 or marked.least.num_left != marked.most.num_left:
            raise Undecidable("which tokens are likely enough for XTC depends on those that the trace does not keep")
        self._num_dropped = marked.most.num_left - 1

    def _mirostat(self) -> None:
        if self._num_dropped:
            raise Undecidable("mirostat_tau goes by what XTC left, and that holds tokens that the trace does not keep")
        self._bounds = keep_likely(self._bounds, 2.0**-self._limit, 2.0**-self._limit)
