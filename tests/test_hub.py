"""The hub source, against a hub on this machine: whole downloads, bounded waits, and errors told apart."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants
from minigen.generation import hub
from minigen.generation.errors import FetchError, MinigenError, SourceError
from minigen.generation.fetching import fetch, locate
from minigen.generation.hub_client import bind_client
from minigen.generation.sources import HubSource, ModelFiles

COMMIT = "c0ffee" + "0" * 34
TOKEN = "hf_averysecrettoken"
FILES = {
    "README.md": b"# A model",
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "model.safetensors": bytes(range(256)) * 40,
    "model.Q8_0.gguf": b"GGUF" + bytes(100),
    "pytorch_model.bin": b"pickle",
    "modeling_own.py": b"print('own code')",
    "consolidated.safetensors": bytes(64),
    "onnx/config.json": b"{}",
}


class FakeHub(ThreadingHTTPServer):
    """Serves one repository, `org/name`, and fails as it is told."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = dict(FILES)
        self.refusals: dict[str, tuple[int, dict[str, str]]] = {}  # part of a path -> status, headers
        self.cut_at: int | None = None  # bytes of the weights after which the connection breaks
        self.page: bytes | None = None  # sent instead of every answer
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: FakeHub

    def do_HEAD(self) -> None:
        self.answer(has_body=False)

    def do_GET(self) -> None:
        self.answer(has_body=True)

    def answer(self, *, has_body: bool) -> None:
        path = self.path.split("?")[0]
        self.server.asked.append(f"{self.command} {path}")
        for part, (status, headers) in self.server.refusals.items():
            if part in path:
                self.send(status, headers, b"{}" if has_body else b"")
                return
        if self.server.page is not None:
            self.send(200, {}, self.server.page)
        elif path.startswith("/api/models/org/name/tree/"):
            entries = [
                {"type": "file", "path": name, "size": len(content), "oid": f"oid-{name.replace('/', '-')}"}
                for name, content in self.server.files.items()
            ]
            self.send(200, {}, json.dumps(entries).encode())
        elif path.startswith("/api/models/org/name"):
            self.send(200, {}, json.dumps({"id": "org/name", "sha": COMMIT}).encode())
        elif path.startswith(f"/org/name/resolve/{COMMIT}/"):
            name = path.removeprefix(f"/org/name/resolve/{COMMIT}/")
            self.send_file(name, self.server.files[name], has_body)
        else:
            self.send(404, {"X-Error-Code": "RepoNotFound"}, b"{}")

    def send_file(self, name: str, content: bytes, has_body: bool) -> None:
        headers = {"ETag": f'"oid-{name}"', "X-Repo-Commit": COMMIT, "Content-Length": str(len(content))}
        if has_body and name == "model.safetensors" and self.server.cut_at is not None:
            content = content[: self.server.cut_at]
            self.server.refusals["/resolve/"] = (503, {})
        self.send(200, headers, content if has_body else b"")
        self.close_connection = True

    def send(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for key, value in ({"Content-Length": str(len(content))} | headers).items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache, no token, and a client that waits for no one for long."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "hub"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with FakeHub() as fake:
        thread = threading.Thread(target=fake.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setattr(constants, "ENDPOINT", fake.url)
        files = fake.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", files)
        yield fake
        huggingface_hub.close_session()
        fake.shutdown()
        thread.join()


class Recorder:
    """Keeps the notes, and adds up what came."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.totals: list[int | None] = []
        self.came = 0

    def note(self, text: str) -> None:
        self.notes.append(text)

    def start(self, label: str, total: int | None) -> None:
        self.totals.append(total)

    def advance(self, amount: int) -> None:
        self.came += amount

    def finish(self) -> None:
        pass


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def failure(source: HubSource | None = None, **options: Any) -> MinigenError:
    """The error of fetching the model, whose message is one line and holds no token."""
    with pytest.raises(MinigenError) as raised:
        fetch([source or HubSource("org/name")], **options)
    assert "\n" not in str(raised.value)
    assert TOKEN not in str(raised.value)
    return raised.value


def test_a_model_is_fetched_and_then_needs_no_hub(server: FakeHub, cache: Path) -> None:
    """MOD-1"""
    source = HubSource("org/name")
    assert locate(source) is None
    told = Recorder()
    files = fetch([source], progress=told)
    assert files == ModelFiles(
        path=cache / "models--org--name" / "snapshots" / COMMIT,
        gguf=None,
        source=source,
        name="org/name",
        revision=COMMIT,
    )
    assert names(files.path) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert (files.path / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    total = sum(len(FILES[name]) for name in names(files.path))
    assert told.notes == [f"Fetching org/name from the hub: 10 kB in 3 files to {cache}."]
    assert (told.totals, told.came) == ([total], total)
    server.asked.clear()
    assert fetch([source]) == fetch([source], offline=True) == locate(source) == files
    assert locate(HubSource("org/name", COMMIT)) is not None
    assert server.asked == []


def test_own_code_comes_only_when_it_is_trusted(server: FakeHub) -> None:
    """R7"""
    source = HubSource("org/name")
    fetch([source])
    assert locate(source, with_code=True) is None
    assert "modeling_own.py" in names(fetch([source], with_code=True).path)
    assert locate(source, with_code=True) is not None


def test_a_revision_is_asked_for(server: FakeHub) -> None:
    files = fetch([HubSource("org/name", "v1.0")])
    assert files.revision == COMMIT
    assert "GET /api/models/org/name/revision/v1.0" in server.asked
    assert locate(HubSource("org/name", "v1.0")) is not None
    assert locate(HubSource("org/name", "v2.0")) is None


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        (["model.safetensors", "a.gguf", "w.bin"], ["model.safetensors"]),
        (
            ["model-1-of-2.safetensors", "model-2-of-2.safetensors"],
            ["model-1-of-2.safetensors", "model-2-of-2.safetensors"],
        ),
        (["a.gguf", "config.json"], ["config.json", "a.gguf"]),
    ],
)
def test_one_form_of_the_weights_is_chosen(given: list[str], chosen: list[str]) -> None:
    assert hub.choose_files(HubSource("org/name"), given) == chosen


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["a.gguf", "b.gguf"], "has 2 GGUF files, a.gguf the first of them"),
        (["pytorch_model.bin", "config.json"], "has pickle weights only"),
        (["config.json"], "has no safetensors and no GGUF weights"),
        (["onnx/model.safetensors"], "has no safetensors and no GGUF weights"),
    ],
)
def test_a_model_without_usable_weights_is_told(server: FakeHub, given: list[str], message: str) -> None:
    """SEC-5"""
    server.files = dict.fromkeys(given, b"x")
    error = failure()
    assert isinstance(error, SourceError)
    assert message in str(error)


def test_a_single_gguf_file_is_the_model(server: FakeHub) -> None:
    server.files = {"tiny.gguf": b"GGUF", "README.md": b""}
    assert fetch([HubSource("org/name")]).gguf == "tiny.gguf"
    found = locate(HubSource("org/name"))
    assert found is not None
    assert found.gguf == "tiny.gguf"


def test_a_cut_download_is_told_and_not_believed(server: FakeHub, cache: Path) -> None:
    """R10"""
    server.cut_at = 5000
    error = failure()
    assert isinstance(error, FetchError)
    assert str(error) == "The hub is in trouble (503) and did not give org/name: try again later."
    assert locate(HubSource("org/name")) is None
    assert "is not complete in the cache folder" in str(failure(offline=True))
    assert not list(cache.glob("**/*.incomplete"))
    server.cut_at = None
    server.refusals.clear()
    files = fetch([HubSource("org/name")])
    assert (files.path / "model.safetensors").read_bytes() == FILES["model.safetensors"]


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_file_of_another_size_is_not_believed_and_fetched_again(server: FakeHub, name: str) -> None:
    files = fetch([HubSource("org/name")])
    (files.path / name).resolve().write_bytes(b"half")
    assert locate(HubSource("org/name")) is None
    again = fetch([HubSource("org/name")])
    assert (again.path / name).read_bytes() == FILES[name]
    assert locate(HubSource("org/name")) is not None


def test_a_cache_of_another_program_is_taken_when_it_is_whole(server: FakeHub, cache: Path) -> None:
    files = fetch([HubSource("org/name")])
    for listing in (cache / "models--org--name" / "trees").iterdir():
        listing.unlink()
    huggingface_hub._tree_cache._IN_MEMORY_TREE_CACHE.clear()  # type: ignore[attr-defined]
    assert locate(HubSource("org/name")) is not None
    (files.path / "model.safetensors").unlink()
    assert locate(HubSource("org/name")) is None


UNKNOWN = {"X-Error-Code": "RepoNotFound"}
GATED = {"X-Error-Code": "GatedRepo"}


REFUSALS = [
    (404, UNKNOWN, SourceError, "The hub model org/name does not exist: check the name; minigen models list shows"),
    (404, {"X-Error-Code": "RevisionNotFound"}, SourceError, "The hub model org/name has no revision 'main'."),
    (401, {}, FetchError, "The hub did not accept your token for org/name: log in again with `hf auth login`."),
    (403, {}, FetchError, "The hub model org/name is not open to your account (403): ask its owner for access or use"),
    (429, {"Retry-After": "3600"}, FetchError, "The hub has had too many requests (429) and did not give org/name"),
    (500, {}, FetchError, "The hub is in trouble (500) and did not give org/name: try again later."),
    (503, {}, FetchError, "The hub is in trouble (503) and did not give org/name: try again later."),
]


@pytest.mark.parametrize(("status", "headers", "kind", "message"), REFUSALS)
def test_each_refusal_is_told_apart(
    server: FakeHub, monkeypatch: pytest.MonkeyPatch, status: int, headers: Any, kind: type, message: str
) -> None:
    """MOD-3"""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    server.refusals["/api/"] = (status, headers)
    error = failure()
    assert type(error) is kind
    assert str(error).startswith(message)


@pytest.mark.parametrize("status", [429, 503])
def test_a_file_that_the_hub_cannot_give_is_told_without_waiting(server: FakeHub, status: int) -> None:
    """R10: the library would try six times, and sleep for as long as the hub says"""
    server.refusals["/resolve/"] = (status, {"Retry-After": "3600"})
    assert f"({status})" in str(failure())
    assert len([asked for asked in server.asked if asked.endswith("/config.json")]) <= 2


def test_a_guest_is_told_that_a_model_may_be_private(server: FakeHub) -> None:
    """MOD-3: the hub answers so for unknown names as well"""
    server.refusals["/api/"] = (401, {})
    error = failure()
    assert type(error) is SourceError
    assert str(error) == (
        "The hub model org/name does not exist or is private: check the name, or log in with `hf auth login`; "
        "minigen models list shows what is here."
    )


def test_a_gated_model_says_how_to_get_it(server: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """MOD-4"""
    server.refusals["/resolve/"] = (401, GATED)
    error = failure()
    assert type(error) is FetchError
    assert str(error) == (
        f"The hub model org/name is gated: accept its terms at {server.url}/org/name and log in with `hf auth login` "
        "(or set HF_TOKEN)."
    )
    server.refusals["/resolve/"] = (403, GATED)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert str(failure()) == (
        "The hub model org/name is gated and your account has no access yet: accept its terms at "
        f"{server.url}/org/name ."
    )


@pytest.mark.parametrize("page", [b"<html>Log in to this network</html>", b"[]", b"{}", b"null", b""])
def test_a_page_that_is_no_hub_s_is_told(server: FakeHub, page: bytes) -> None:
    """R12"""
    server.page = page
    assert "what answered is not a hub" in str(failure())


def test_a_full_disk_is_told_before_the_download(server: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 5000})())
    assert "The disk is too full: 10 kB are needed" in str(failure())
    assert not any("/resolve/" in asked for asked in server.asked)


def test_a_refused_connection_is_told(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MOD-3, R12"""
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    error = failure()
    assert type(error) is FetchError
    assert str(error) == (
        "The hub model org/name could not be fetched: the hub cannot be reached ([Errno 111] Connection refused); "
        "check the network, or use a model that is on this machine (minigen models list)."
    )


def test_a_name_without_an_owner_may_have_been_meant_for_a_folder(
    server: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = "There is no folder nope here, and the hub model nope"
    assert str(failure(HubSource("nope"))) == (
        f"{start} does not exist: check the name; minigen models list shows what is here."
    )
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    message = str(failure(HubSource("nope")))
    assert message.startswith(f"{start} could not be fetched: the hub cannot be reached (")
    assert message.endswith("or use a model that is on this machine (minigen models list).")


def test_offline_names_the_model_the_folder_and_the_flag(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MOD-1"""
    start = f"The hub model org/name is not in the cache folder {cache}, and "
    end = " forbids fetching it: run minigen models pull org/name without it first."
    assert str(failure(offline=True)) == f"{start}--offline{end}"
    message = str(failure(HubSource("org/name", "v1.0"), offline=True))
    assert message.endswith("run minigen models pull org/name --revision v1.0 without it first.")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert str(failure()) == f"{start}the variable HF_HUB_OFFLINE{end}"


def test_a_proxy_of_the_environment_is_used(server: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://hub.invalid")
    server.refusals["http://hub.invalid/api/"] = (503, {})
    assert "The hub is in trouble (503)" in str(failure())
    assert server.asked == ["GET http://hub.invalid/api/models/org/name"]


def test_every_request_has_a_limit(server: FakeHub) -> None:
    """R12: the library asks for none, or for 60 seconds"""
    bind_client()
    session = huggingface_hub.get_session()
    for wanted in (None, 60.0):
        response = session.get(server.url, timeout=wanted)
        assert response.request.extensions["timeout"] == {"connect": 3.0, "pool": 3.0, "read": 5.0, "write": 5.0}
    with session.stream("GET", server.url, timeout=0.5) as response:
        assert response.request.extensions["timeout"] == dict.fromkeys(("connect", "pool", "read", "write"), 0.5)


CHILD = """
import sys
from minigen.generation.errors import FetchError
from minigen.generation.fetching import fetch
from minigen.generation.sources import parse_source
try:
    print(fetch([parse_source(sys.argv[1])]).path)
except FetchError as error:
    print(error)
"""


def run_child(**environment: str) -> subprocess.CompletedProcess[str]:
    """A fresh process, where the libraries read their variables; it may take ten seconds."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING", "XDG"))}
    return subprocess.run(
        [sys.executable, "-c", CHILD, "org/name"],
        env=kept | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    )


def test_a_silent_hub_is_given_up_within_ten_seconds(tmp_path: Path) -> None:
    """R12"""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        done = run_child(HF_HOME=str(tmp_path), HF_ENDPOINT=f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert done.stdout == (
        "The hub model org/name could not be fetched: the hub did not answer in time; check the network, "
        "or use a model that is on this machine (minigen models list).\n"
    )
    assert done.stderr == ""


def test_the_variables_of_the_hub_are_honoured(server: FakeHub, tmp_path: Path) -> None:
    """MOD-1"""
    folder = tmp_path / "home" / "hub" / "models--org--name" / "snapshots" / COMMIT
    done = run_child(HF_HOME=str(tmp_path / "home"), HF_ENDPOINT=server.url)
    assert (done.stdout, done.stderr) == (f"{folder}\n", "")
    server.asked.clear()
    done = run_child(HF_HUB_CACHE=str(tmp_path / "home" / "hub"), HF_ENDPOINT=server.url, HF_HUB_OFFLINE="1")
    assert (done.stdout, done.stderr) == (f"{folder}\n", "")
    assert server.asked == []
