"""The parcels of a batch as a source that Ray Data reads: one by one, as the batch sends them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any

import pyarrow  # type: ignore[import-untyped]  # it has no types
import ray
from ray.data import Datasource, ReadTask
from ray.data.block import BlockMetadata


class Parcels(Datasource):
    """Reads parcels from the foreman, each a row, in a single task that goes on as long as parcels come."""

    def __init__(self, foreman: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # it has no types
        self._foreman = foreman

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Give the task."""
        unknown = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
        return [ReadTask(partial(_read, self._foreman), unknown)]

    def estimate_inmemory_data_size(self) -> int | None:
        """Give nothing: the parcels are not there yet."""
        return None


def _read(foreman: Any) -> Iterator[Any]:
    for number in count():
        parcel = ray.get(foreman.parcel.remote(number))
        if parcel is None:
            return
        yield row("parcel", parcel)


def row(name: str, data: bytes) -> Any:
    """Give a table of one row, which Ray Data neither cuts nor joins."""
    return pyarrow.table({name: [data]})
