"""`minigen batch --ray`: the same records from a cluster as from one machine, whatever is lost on the way."""

import asyncio
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import typer.main
from minigen.cli import batch_plan
from minigen.cli.app import app, main
from minigen.cli.batch_cluster_loop import AWAY, AWAY_ORDERED, ClusterLoop
from minigen.cli.batch_desk import Desk
from minigen.cli.batch_earlier import Done, Earlier
from minigen.cli.batch_encoding import LineEncoder
from minigen.cli.batch_engine import open_engine
from minigen.cli.batch_foreman import Foreman
from minigen.cli.batch_in_hand import InHand
from minigen.cli.batch_input import Line, LineReader
from minigen.cli.batch_options import ray_address
from minigen.cli.batch_parcels import Answers, Begin, Failure, Message, Order, Packer, Parcel, WorkerFacts
from minigen.cli.batch_plan import batch_flags, batch_job
from minigen.cli.batch_pool import Pool, pool_of
from minigen.cli.batch_progress import BatchProgress
from minigen.cli.interrupts import Interrupts
from minigen.cli.notes import Notes
from minigen.cli.option_groups import sampling_settings
from minigen.generation.engine import Engine
from minigen.generation.errors import DeviceError, RunError, UsageError
from processes import COMMAND
from test_batch_command import by_line, lines_of
from tiny_folders import tiny_folder

needs_ray = pytest.mark.skipif(
    sys.platform == "win32" or sys.version_info >= (3, 15), reason="Ray has no wheels for this platform"
)
pytestmark = pytest.mark.usefixtures("no_stdin", "in_folder")
MANY = [
    {"prompt": f"Line {n}" + "x" * (n % 23), "max_new_tokens": 1 + n * 7 % 19, "id": n}
    | ({"temperature": 0} if n % 3 == 0 else {})
    for n in range(1, 241)
]
MANY[6] = {"prompt": ""}
SERVE = """
import sys
from ray.cluster_utils import Cluster
small = {"num_cpus": 1, "object_store_memory": 80_000_000}
quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
head = {"include_dashboard": False, "_system_config": quick, **small}
cluster = Cluster(initialize_head=True, head_node_args=head)
second = cluster.add_node(**small)
print(cluster.address, flush=True)
for line in sys.stdin:
    cluster.remove_node(second, allow_graceful=False)
    print("lost", flush=True)
cluster.shutdown()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("model"))


# --- the option


@pytest.mark.parametrize(
    ("words", "address"),
    [
        (["in", "--ray"], ""),
        (["in", "--ray", "-q"], ""),
        (["--ray", "-"], ""),
        (["--ray=", "in"], ""),
        (["--ray", "auto", "in"], "auto"),
        (["--ray=10.0.0.5:6379", "in"], "10.0.0.5:6379"),
        (["in", "--ray", "head-node.example:6379"], "head-node.example:6379"),
        (["in", "--ray", "[::1]:6379"], "[::1]:6379"),
        (["in", "--ray", "local", "--ordered"], "local"),
        (["in"], None),
        (["--", "--ray"], None),
    ],
)
def test_an_address_may_follow_the_option(words: list[str], address: str | None) -> None:
    command: Any = typer.main.get_command(app)
    context = command.make_context("minigen", [])
    _, command, words = command.resolve_command(context, ["batch", *words])
    assert command.make_context("batch", words, parent=context).params["ray"] == address


@pytest.mark.parametrize("text", ["in.jsonl", "host", "host:port", "http://host:6379", "a b:1", "host:6379/x"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(
        UsageError, match=r"--ray must be followed by an address .* not by .*: the input goes before it"
    ):
        ray_address(text)


def test_an_input_in_the_place_of_an_address_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    Path("in.jsonl").write_bytes(b"")
    assert main(["batch", "--ray", "in.jsonl"]) == 2
    assert capsys.readouterr().err == (
        "minigen: --ray must be followed by an address such as 10.0.0.5:6379, auto or local, or by another option, "
        "not by 'in.jsonl': the input goes before it.\n"
    )
    assert main(["batch", "in.jsonl", "--ray", "ray://head:10001"]) == 2
    assert "Ray Data does not run through Ray's client" in capsys.readouterr().err


def test_without_ray_one_sentence_says_what_to_install(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("in.jsonl").write_bytes(b"")
    monkeypatch.setattr(batch_plan, "find_spec", lambda name: None)
    assert main(["batch", "in.jsonl", "-m", str(folder), "--ray"]) == 2
    assert capsys.readouterr().err == 'minigen: --ray needs Ray: pip install "minigen-cli[ray]".\n'


@pytest.mark.parametrize("device", ["cuda:1", "mps", "balanced"])
def test_a_device_that_a_cluster_does_not_choose_by_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    Path("in.jsonl").write_bytes(b"")
    monkeypatch.setattr(batch_plan, "find_spec", lambda name: True)
    assert main(["batch", "in.jsonl", "-m", str(folder), "--ray", "--device", device]) == 2
    assert capsys.readouterr().err == (
        f"minigen: --ray gives each worker a GPU or cores: the device must be auto, cuda or cpu, not {device}.\n"
    )


# --- the workers that fit

SMALL, LARGE, GPUS = {"CPU": 2.0}, {"CPU": 13.0, "memory": 1e9}, {"CPU": 8.0, "GPU": 4.0}


@pytest.mark.parametrize(
    ("machines", "device", "threads", "pool"),
    [
        ([SMALL, LARGE, {}], "auto", None, Pool(size=7, device="cpu", threads=2, cores=2, gpus=0)),
        ([LARGE], "cpu", None, Pool(size=1, device="cpu", threads=8, cores=8, gpus=0)),
        ([LARGE, SMALL], "auto", 4, Pool(size=3, device="cpu", threads=4, cores=4, gpus=0)),
        ([GPUS, SMALL, {"GPU": 1.0}], "auto", None, Pool(size=5, device="cuda", threads=None, cores=0, gpus=1)),
        ([GPUS], "cuda", 3, Pool(size=4, device="cuda", threads=3, cores=0, gpus=1)),
        ([GPUS], "cpu", None, Pool(size=1, device="cpu", threads=8, cores=8, gpus=0)),
    ],
)
def test_a_worker_gets_a_gpu_or_some_cores(
    machines: list[dict[str, float]], device: str, threads: int | None, pool: Pool
) -> None:
    assert pool_of(machines, device, threads) == pool


@pytest.mark.parametrize(
    ("machines", "device", "threads", "said"),
    [
        ([SMALL], "cuda", None, "The device cuda needs a GPU, and the Ray cluster has none."),
        ([{"CPU": 0.5}, {}], "auto", None, "The Ray cluster has no cores for a worker."),
        ([SMALL], "cpu", 3, "--threads 3 needs a machine of as many cores, and the largest has 2."),
    ],
)
def test_a_cluster_without_room_is_refused(
    machines: list[dict[str, float]], device: str, threads: int | None, said: str
) -> None:
    with pytest.raises(DeviceError) as found:
        pool_of(machines, device, threads)
    assert str(found.value) == said


# --- one engine for several threads


def lines_in(*given: dict[str, Any]) -> list[Line]:
    Path("in.jsonl").write_bytes(lines_of(*given))
    with Path("in.jsonl").open("rb") as stream:
        return list(LineReader(stream, "in.jsonl"))


@pytest.fixture
def desk(folder: Path) -> Iterator[Desk]:
    """A desk whose engine runs four requests at a time."""
    Path("in.jsonl").write_bytes(b"")
    group: Any = typer.main.get_command(app)
    context = group.make_context("minigen", [])
    words = command(folder, "--max-running", "4")[len(COMMAND) :]
    _, batch, words = group.resolve_command(context, words)
    params = batch.make_context("batch", words, parent=context).params
    given, notes = batch_flags(params, sampling_settings(params)), Notes(sys.stderr, is_quiet=True)
    job = batch_job(given, notes)
    opened = open_engine(given, job, notes)
    desk = Desk(opened.engine, LineEncoder(job, opened.model, opened.settings, seed=5, form="json"), {})
    yield desk
    desk.close()


def test_threads_share_an_engine_and_each_gets_its_own_records(
    folder: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight callers, some lines that fail, and some that two callers give."""
    most, step = [0], InHand.step

    def watched(self: InHand[Any]) -> Any:
        most[0] = max(most[0], len(self))
        return step(self)

    lines = lines_in(*MANY)
    parts = [lines[start : start + 30] for start in range(0, 240, 30)]
    parts[3] = parts[2]
    with monkeypatch.context() as patch, ThreadPoolExecutor(8) as callers:
        patch.setattr(InHand, "step", watched)
        answers = list(callers.map(desk.answer, parts))
    assert [[record["line"] for record in each] for each in answers] == [[line.number for line in p] for p in parts]
    assert answers[2] == answers[3]
    assert most[0] > 60, "the callers' lines are in the engine together"
    alone = {number: record | {"run": {}} for number, record in by_line(here(folder)).items()}
    assert {record["line"]: record for each in answers for record in each}.items() <= alone.items()


def test_an_engine_that_fails_fails_its_callers(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Engine) -> Any:
        raise RunError("It broke.")

    monkeypatch.setattr(Engine, "step", broken)
    lines = lines_in(*MANY)
    with ThreadPoolExecutor(2) as callers:
        for caller in [callers.submit(desk.answer, lines[:5]), callers.submit(desk.answer, lines[7:9])]:
            with pytest.raises(RunError, match="It broke"):
                caller.result(60)


# --- the loop


class Cluster:
    """Answers parcels as a test wants, the latest first."""

    def __init__(self, facts: WorkerFacts) -> None:
        self.facts = facts
        self.orders: list[Order] = []
        self.waiting: list[Parcel] = []
        self.most = 0

    def send(self, message: Order) -> None:
        self.orders.append(message)
        if isinstance(message, Parcel):
            self.waiting.append(message)
            self.most = max(self.most, len(self.waiting))

    def receive(self, patience: float) -> Message | None:
        if patience == 0:
            return None
        parcel = self.waiting.pop()
        records = tuple({"line": line.number, "usage": {"completion_tokens": 1}} for line in parcel.lines)
        return Answers(number=parcel.number, facts=self.facts, records=records)


class Written:
    """Takes what arrives."""

    has_begun = False

    def __init__(self) -> None:
        self.lines: list[int] = []

    def write(self, answers: Answers) -> None:
        self.lines += [record["line"] for record in answers.records]

    def begin(self) -> None: ...

    def wait(self) -> None: ...


@pytest.mark.parametrize(("is_ordered", "away"), [(False, AWAY), (True, AWAY_ORDERED)])
def test_a_bounded_number_of_parcels_is_away(is_ordered: bool, away: int) -> None:
    Path("lines").write_bytes(lines_of(*[{"prompt": "a"}] * 3000, "", {"prompt": "b"}))
    progress = BatchProgress(Notes(sys.stderr), sys.stderr)
    cluster, written = Cluster(WorkerFacts(run={}, version="", choices="", warnings=(), notes=())), Written()
    arrivals: Any = written
    with Path("lines").open("rb") as stream:
        packer = Packer(LineReader(stream, "lines"), "json", Done(Earlier(name="")), progress, 8)
        loop = ClusterLoop(cluster, packer, arrivals, progress, Interrupts(), num_workers=2, is_ordered=is_ordered)
        assert loop.run() == 0
    assert sorted(written.lines) == [*range(1, 3001), 3002]
    assert cluster.most == 2 * away
    assert (cluster.orders[0], cluster.orders[-1]) == (Begin(num_workers=2), None)
    assert progress.num_blank == 1


def test_a_parcel_holds_so_many_lines_and_bytes() -> None:
    progress = BatchProgress(Notes(sys.stderr), sys.stderr)
    given = [{"prompt": "x" * size} for size in (1, 1, 1, 1, 3_000_000, 3_000_000, 1, 5_000_000, 1)]
    Path("lines").write_bytes(lines_of(*given))
    with Path("lines").open("rb") as stream:
        packer = Packer(LineReader(stream, "lines"), "json", Done(Earlier(name="")), progress, 3)
        found = []
        while not packer.has_ended:
            found.append(packer.next(0))
    assert [str(parcel) for parcel in found] == ["lines 1 to 3", "lines 4 to 6", "lines 7 to 8", "line 9"]
    assert pickle.loads(pickle.dumps(found)) == found


def test_the_foreman_gives_parcels_by_their_numbers_and_counts_starts() -> None:
    async def ask() -> list[object]:
        foreman = Foreman()
        later = asyncio.create_task(foreman.parcel(1))
        await foreman.put(0, b"first")
        found: list[object] = [await foreman.parcel(0), await foreman.parcel(0), later.done()]
        await foreman.put(1, b"second")
        await foreman.put(2, None)
        await foreman.forget(0)
        found += [await later, await foreman.parcel(2), await foreman.parcel(0)]
        found += [await foreman.start(name) for name in ("a", "b", "a")]
        await foreman.succeed("a")
        return [*found, await foreman.start("a"), await foreman.start("b")]

    assert asyncio.run(ask()) == [b"first", b"first", False, b"second", None, b"", 1, 1, 2, 1, 2]


def test_an_error_travels_as_its_sentence_and_kind() -> None:
    for error in (UsageError("No."), RunError("It broke.")):
        came = pickle.loads(pickle.dumps(Failure.of(error))).error()
        assert (type(came), str(came)) == (type(error), str(error))


# --- on a cluster of two machines


def command(folder: Path, *arguments: str, source: str = "in.jsonl") -> list[str]:
    return [*COMMAND, "batch", source, "-m", str(folder), "--device", "cpu", *arguments]


def here(folder: Path, *arguments: str) -> str:
    """What the batch writes without a cluster, in the order of the lines."""
    Path("in.jsonl").write_bytes(lines_of(*MANY))
    flags = ["--seed", "5", "-q", "-o", "here", "--ordered", "--overwrite"]
    assert main([*command(folder, *flags, *arguments)[len(COMMAND) :]]) == 1
    return Path("here").read_text()


class TwoMachines:
    """A cluster of two machines of one core each, which are processes here."""

    def __init__(self) -> None:
        self.mark = uuid4().hex
        self._folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # sockets need a short path
        environment = {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", "RAY_TMPDIR": self._folder}
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **environment, "MARK": self.mark},
        )

    @cached_property
    def address(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def workers(self) -> list[int]:
        return [number for number, words in alive(self.mark).items() if words.startswith("ray::MapWorker")]

    def lose_one(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("lose\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "lost\n"

    def close(self) -> None:
        self._process.communicate(timeout=60)
        wait_for(lambda: not alive(self.mark))
        shutil.rmtree(self._folder)


def alive(mark: str) -> dict[int, str]:
    """The processes that were started with a mark in their environment, by their numbers, with their names."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"MARK={mark}".encode() in (folder / "environ").read_bytes():
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it has ended, or is someone else's
            continue
    return {number: words for number, words in found.items() if words}  # a dead one that waits for its parent has none


def wait_for(what: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(scope="module")
def cluster() -> Iterator[TwoMachines]:
    machines = TwoMachines()
    yield machines
    machines.close()
    assert not Path("/dev/shm").is_dir() or list(Path("/dev/shm").glob("plasma*")) == []


def batch_on(cluster: TwoMachines, folder: Path, *flags: str, **more: Any) -> subprocess.Popen[str]:
    arguments = command(folder, "--ray", cluster.address, *flags, **more)
    environment = {**os.environ, "MARK": uuid4().hex}
    return subprocess.Popen(
        arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def has_records(path: str) -> Callable[[], bool]:
    return lambda: Path(path).exists() and Path(path).stat().st_size > 0


@needs_ray
def test_a_killed_worker_s_lines_are_done_again_and_a_batch_here_goes_on_with_them(
    cluster: TwoMachines, folder: Path
) -> None:
    """R15: every record is the one of a single machine, and none is there twice."""
    expected = here(folder)
    process = batch_on(cluster, folder, "--seed", "5", "-o", "out", "-q")
    wait_for(has_records("out"))
    os.kill(cluster.workers()[0], signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "")
    assert err == "minigen: 1 of 240 requests failed, the first in line 7: The prompt is empty.\n"
    assert by_line(Path("out").read_text()) == by_line(expected)
    some = Path("out").read_text().splitlines(keepends=True)[:100]
    Path("out").write_text("".join(some))
    assert main([*command(folder, "-o", "out", "--resume", "--ordered", "-q")[len(COMMAND) :]]) == 1
    assert Path("out").read_text() == expected


@needs_ray
def test_a_batch_from_here_goes_on_there_in_order_and_from_a_pipe(cluster: TwoMachines, folder: Path) -> None:
    expected = here(folder)
    Path("out").write_text("".join(expected.splitlines(keepends=True)[20:90]))
    process = batch_on(cluster, folder, "-o", "out", "--resume", "--ordered", source="-")
    out, err = process.communicate(Path("in.jsonl").read_text(), timeout=120)
    assert (process.returncode, out) == (1, "")
    assert err == "minigen: 1 of 170 requests failed, the first in line 7: The prompt is empty.\n"
    assert Path("out").read_text() == expected


@needs_ray
def test_at_ctrl_c_what_came_back_is_written_and_no_process_is_left(cluster: TwoMachines, folder: Path) -> None:
    expected = by_line(here(folder))
    process = batch_on(cluster, folder, "--seed", "5", "-o", "out")
    wait_for(has_records("out"))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert err.endswith("minigen: interrupted; what is done is written, and --resume goes on with the others.\n")
    found = by_line(Path("out").read_text())
    assert 0 < len(found) < 240
    assert found.items() <= expected.items()
    wait_for(lambda: not cluster.workers(), 20)


@needs_ray
def test_what_keeps_a_worker_from_loading_is_said_in_one_sentence(
    cluster: TwoMachines, folder: Path, tmp_path: Path
) -> None:
    broken = Path(shutil.copytree(folder, tmp_path / "broken"))
    weights = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(weights[:1000])
    Path("in.jsonl").write_bytes(lines_of(*MANY))
    process = batch_on(cluster, broken, "-o", "out")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err.count("\n")) == (2, "", 1)
    assert re.match(r"minigen: .*model\.safetensors is damaged or cut short", err)
    assert not Path("out").exists()


@needs_ray
def test_an_address_where_nothing_listens_is_said_at_once(folder: Path) -> None:
    Path("in.jsonl").write_bytes(lines_of(*MANY))
    done = subprocess.run(command(folder, "--ray", "127.0.0.1:1"), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "minigen: The Ray cluster at 127.0.0.1:1 cannot be reached: Connection refused.\n"


@needs_ray
def test_a_ray_of_its_own_is_ended_with_the_batch_when_the_reader_is_gone(folder: Path) -> None:
    """TTY-1: and nothing of it stays on the disk."""
    Path("in.jsonl").write_bytes(lines_of(*MANY[:6]))
    before, mark = set(Path("/tmp").glob("minigen-ray-*")), uuid4().hex
    process = subprocess.Popen(
        command(folder, "--ray", "local", "--threads", "1"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "MARK": mark},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 0
    wait_for(lambda: not alive(mark), 20)
    assert set(Path("/tmp").glob("minigen-ray-*")) <= before


@needs_ray
def test_a_lost_machine_s_lines_are_done_by_the_others(cluster: TwoMachines, folder: Path) -> None:
    """The cluster of these tests has one machine from here on."""
    expected = here(folder)
    process = batch_on(cluster, folder, "--seed", "5", "--ordered", "-o", "out", "-q")
    wait_for(has_records("out"))
    cluster.lose_one()
    process.communicate(timeout=120)
    assert Path("out").read_text() == expected
