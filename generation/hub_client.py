"""Holds the hub's client library to time limits, and says in one sentence what went wrong with the hub."""

import importlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from .errors import FetchError, MinigenError, SourceError
from .sources import HubSource
from .store import FULL

_CONNECT_SECONDS = 3.0
_ANSWER_SECONDS = 5.0  # for a question to the hub
_BODY_SECONDS = 8.0  # for the next piece of a file
_OTHERWISE = "check the network, or use a model that is on this machine (minigen models list)"

Result = TypeVar("Result")


def bind_client() -> None:
    """Make every request of huggingface_hub end within seconds when the other side is silent.

    The library's own settings do not: some of its requests have no limit and others are tried again for minutes.
    """
    from huggingface_hub import constants, set_client_factory
    from huggingface_hub.errors import OfflineModeIsEnabled

    httpx = _utils().httpx
    base: Any = httpx.Client

    class BoundedClient(base):  # type: ignore[misc]  # the library is reached untyped
        def send(self, request: Any, **options: Any) -> Any:
            if constants.is_offline_mode():
                raise OfflineModeIsEnabled("The hub is switched off.")
            wait = _BODY_SECONDS if options.get("stream") else _ANSWER_SECONDS
            limits = {"connect": _CONNECT_SECONDS, "pool": _CONNECT_SECONDS, "read": wait, "write": wait}
            asked = request.extensions.get("timeout") or {}
            request.extensions["timeout"] = {key: min(asked.get(key) or limit, limit) for key, limit in limits.items()}
            try:
                response = super().send(request, **options)
            except (httpx.TimeoutException, httpx.NetworkError) as error:
                # The one error that the library neither tries again nor waits after.
                raise OfflineModeIsEnabled("The hub cannot be reached.") from error
            if response.status_code in (408, 429) or response.status_code >= 500:
                _utils().hf_raise_for_status(response)  # here, else the library waits as long as the hub tells it to
            return response

    set_client_factory(lambda: BoundedClient(follow_redirects=True, timeout=_ANSWER_SECONDS))


def _utils() -> Any:
    """The module that exports the hub library's own client library, untyped, under one name for all versions."""
    return importlib.import_module("huggingface_hub.utils")


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """The result of `call`, or OfflineModeIsEnabled when it takes longer: a name look-up has no limit of its own."""
    from huggingface_hub.errors import OfflineModeIsEnabled

    results: list[Result] = []
    failures: list[Exception] = []

    handed_on: tuple[type[Exception], ...] = (*hub_errors(), MinigenError)

    def run() -> None:
        try:
            results.append(call())
        except handed_on as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)  # a silent one must not keep the process alive
    thread.start()
    thread.join(seconds)
    if failures:
        raise failures[0]
    if not results:
        raise OfflineModeIsEnabled("The hub is silent.") from TimeoutError()
    return results[0]


def hub_errors() -> tuple[type[Exception], ...]:
    """What the library raises when the hub, the network or the disk fails."""
    from huggingface_hub.errors import RevisionResolutionError

    return (OSError, RevisionResolutionError, _utils().httpx.HTTPError)


def explain(error: Exception, source: HubSource) -> MinigenError:
    """What to tell a person about an error of the hub's library; it never quotes a token."""
    from huggingface_hub import errors

    for cause in _causes(error):
        match cause:
            case errors.GatedRepoError():
                return FetchError(_gated(source))
            case errors.RevisionNotFoundError():
                return SourceError(f"The hub model {source.repo} has no revision {source.revision or 'main'!r}.")
            case errors.HfHubHTTPError():
                return _refused(cause.response.status_code, _is_unknown(cause), source)
            case OSError() if cause.errno in FULL:
                return FetchError(f"The disk became full while {source.repo} was downloaded.")
    return FetchError(f"{_named(source)} could not be fetched: {_reason(error)}.")


def _named(source: HubSource) -> str:
    """Begin a sentence about the model; a name without an owner may have been meant for a folder."""
    folder = "" if "/" in source.repo else f"There is no folder {source.repo} here, and "
    return f"{folder}{'the' if folder else 'The'} hub model {source.repo}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, then what it was raised from, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_unknown(error: BaseException) -> bool:
    """Whether the hub says that there is no such model, or would say so to one who is logged in."""
    from huggingface_hub import errors, get_token

    is_guest = isinstance(error, errors.HfHubHTTPError) and error.response.status_code == 401 and not get_token()
    return is_guest or isinstance(error, errors.RepositoryNotFoundError)


def _gated(source: HubSource) -> str:
    from huggingface_hub import constants, get_token

    page = f"{constants.ENDPOINT}/{source.repo}"
    if get_token():
        return f"The hub model {source.repo} is gated and your account has no access yet: accept its terms at {page} ."
    return (
        f"The hub model {source.repo} is gated: accept its terms at {page} and log in with `hf auth login` "
        "(or set HF_TOKEN)."
    )


def _refused(status: int, is_unknown: bool, source: HubSource) -> MinigenError:
    """The error for an HTTP status that the hub answered with."""
    name = _named(source)
    if is_unknown and status == 404:
        return SourceError(f"{name} does not exist: check the name; minigen models list shows what is here.")
    if is_unknown:
        return SourceError(
            f"{name} does not exist or is private: check the name, or log in with `hf auth login`; "
            "minigen models list shows what is here."
        )
    if status == 401:
        return FetchError(f"The hub did not accept your token for {source.repo}: log in again with `hf auth login`.")
    if status == 403:
        return FetchError(f"{name} is not open to your account (403): ask its owner for access or use another token.")
    if status == 404:
        return FetchError(f"{name} has lost a file (404): try again, perhaps with another --revision.")
    if status == 429:
        return FetchError(f"The hub has had too many requests (429) and did not give {source.repo}: try again later.")
    if status >= 500:
        return FetchError(f"The hub is in trouble ({status}) and did not give {source.repo}: try again later.")
    return FetchError(f"The hub refused {source.repo} with the status {status}.")


def _reason(error: Exception) -> str:
    """Why no complete answer came, with what to do about it."""
    httpx = _utils().httpx
    causes = list(_causes(error))
    if any(isinstance(cause, (httpx.TimeoutException, TimeoutError)) for cause in causes):
        return f"the hub did not answer in time; {_OTHERWISE}"
    if any(isinstance(cause, httpx.ProxyError) for cause in causes):
        return "the proxy refused the connection; check HTTPS_PROXY"
    for cause in causes:
        if isinstance(cause, httpx.NetworkError):
            told = str(cause).splitlines()[0] if str(cause) else "the connection broke"
            return f"the hub cannot be reached ({told}); {_OTHERWISE}"
    if isinstance(error, OSError) and error.strerror:
        return f"it could not be written ({error.strerror})"
    return "the answer was cut short or is not a hub's; try again, and check HF_ENDPOINT and the proxy"
