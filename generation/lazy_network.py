"""A network that is loaded when something first asks for it: a compiled step may do all the work of a run."""

from collections.abc import Callable
from typing import Any


class LazyNetwork:
    """Stands for a network. Everything that is asked of it, it asks of the network, which is loaded then."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load: Callable[[], Any] | None = load
        self._network: Any = None

    @property
    def is_loaded(self) -> bool:
        """Whether the network is there."""
        return self._load is None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loaded(), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._loaded()(*args, **kwargs)

    def _loaded(self) -> Any:
        if self._load is not None:
            self._network = self._load()
            self._load = None
        return self._network
