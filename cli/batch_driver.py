"""`python -m minigen.cli.batch_driver FD`: the process that talks to Ray for a batch, over the socket FD.

Ray writes to both standard streams, handles signals, and may end its process when a cluster is lost: here it can. The
batch sends a plan and parcels, and gets what comes of them. When it is gone, or says so by closing this process's
standard input, everything that was started here is ended.
"""

from __future__ import annotations

import os
import pickle
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Final

import ray
import ray.data

from ..generation.errors import MinigenError
from .batch_foreman import Foreman
from .batch_parcels import CALLS, Answers, Begin, ClusterPlan, Failure, Message, Order, Parcel, Ready
from .batch_pool import Pool, pool_of
from .batch_ray import connect
from .batch_source import Parcels
from .batch_worker import Worker

_NAMED: Final = re.compile(r"[\w.]+(?:Error|Exception): ")
NODE: Final = "ray.io/node-id"
_GRACE: Final = 2.0  # seconds for Python to see a signal, which it does not while Ray waits for a cluster


def main() -> None:
    """Do what the process was started for."""
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    channel: Connection[Message, Order] = Connection(descriptor)
    sys.excepthook = _Telling(channel)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    threading.Thread(target=_end_with_batch, daemon=True).start()
    try:
        _drive(channel)
    finally:
        ray.shutdown()


def _end_with_batch() -> None:
    """Wait until the batch is gone, and end this process: at once where Ray is only being looked for."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE)
    if not ray.is_initialized():
        os._exit(1)


class _Telling:
    """Tells the batch, in a sentence, what ended this process, beside what Python does with it."""

    def __init__(self, channel: Connection[Message, Order]) -> None:
        self._channel = channel

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        sys.__excepthook__(kind, error, trace)
        self._channel.send(Failure.of(error) if isinstance(error, MinigenError) else Failure(text=_sentence(error)))


def _sentence(error: BaseException) -> str:
    """Say what failed: of what Ray tells, the last line that names an error, or the first one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    named = [line for line in lines if _NAMED.match(line)]
    reason = (named[-1] if named else lines[0]).removeprefix("ray.exceptions.").split(". ")[0].rstrip(".")
    hint = " Install minigen on every machine of the cluster." if "ModuleNotFoundError" in reason else ""
    return f"The batch failed on the Ray cluster: {reason}.{hint}"


def _drive(channel: Connection[Message, Order]) -> None:
    plan = channel.recv()
    assert isinstance(plan, ClusterPlan)

    def give_up(text: str) -> None:
        channel.send(Failure(text=text))
        os._exit(1)

    connect(plan.given.ray or "", plan.folder, give_up)
    nodes = ray.nodes()  # type: ignore[no-untyped-call]  # it has no types
    machines = [node["Resources"] for node in nodes if node["Alive"]]
    pool = pool_of(machines, plan.job.model.device, plan.given.shared.threads)
    channel.send(Ready(device=pool.device, num_workers=pool.size))
    begin = channel.recv()
    if not isinstance(begin, Begin):
        return
    here = ray.get_runtime_context().get_node_id()
    foreman: Any = ray.remote(num_cpus=0, label_selector={NODE: here})(Foreman).remote()
    threading.Thread(target=_hand_on, args=[channel, foreman], daemon=True).start()
    for answers in _answers(plan, replace(pool, size=begin.num_workers), foreman, here):
        channel.send(answers)
        if isinstance(answers, Answers):
            foreman.forget.remote(answers.number)


def _hand_on(channel: Connection[Message, Order], foreman: Any) -> None:
    """Give the foreman what the batch sends. The batch itself sees to it that this is never much at a time."""
    num_parcels = 0
    while isinstance(parcel := channel.recv(), Parcel):
        num_parcels += 1
        foreman.put.remote(parcel.number, pickle.dumps(parcel))
    foreman.put.remote(num_parcels, None)


def _answers(plan: ClusterPlan, pool: Pool, foreman: Any, here: str) -> Iterator[Answers | Failure]:
    """Let the workers answer every parcel; Ray Data does again what a lost worker had in hand.

    here: the machine of this process, which the parcels do not leave before a worker takes them.
    """
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.target_max_block_size = 1  # a parcel is a block of its own
    context.execution_options.preserve_order = plan.given.ordered
    # A worker whose machine is lost takes the place of one that has run idle, and a machine that comes gets one.
    context.autoscaling_config.actor_pool_util_downscaling_threshold = 0.9
    context.autoscaling_config.actor_pool_util_upscaling_threshold = 1.0
    parcels = ray.data.read_datasource(Parcels(foreman), num_cpus=0, label_selector={NODE: here}, override_num_blocks=1)
    answers = parcels.map_batches(
        Worker,
        batch_size=None,
        batch_format="pyarrow",
        fn_constructor_args=[plan, pool, foreman],
        num_cpus=pool.cores,
        num_gpus=pool.gpus,
        compute=ray.data.ActorPoolStrategy(
            min_size=1,
            initial_size=pool.size,
            max_size=pool.size,
            max_concurrent_calls_per_actor=CALLS,
            max_tasks_in_flight_per_actor=CALLS,
            enable_true_multi_threading=True,
        ),
    )
    for table in answers.iter_batches(batch_size=None, batch_format="pyarrow"):
        yield from (pickle.loads(each.as_py()) for each in table["answers"])


if __name__ == "__main__":
    main()
