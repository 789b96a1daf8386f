"""A data folder and its server, by themselves: which programs run, with what, and what is left behind by each failure.

The programs are stood in for. A server that is started holds ``alive.lock`` as a real one does: it inherits the file.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from app import file_locks, postgres_cluster
from app.postgres_cluster import Cluster
from core.errors import ConfigurationError

HINT = f"\n{postgres_cluster.REMEDY}"
PLAIN = (
    "-c listen_addresses='127.0.0.1' -c unix_socket_directories='' -c max_connections='200' "
    "-c shared_buffers='128MB' -c jit='off' -c timezone='UTC' -c log_timezone='UTC'"
)
RELAXED = (
    " -c fsync='off' -c full_page_writes='off' -c synchronous_commit='off' -c scram_iterations='1'",
    ["--set=fsync=off", "--set=full_page_writes=off", "--set=synchronous_commit=off", "--set=scram_iterations=1",
     "--no-sync"],
)  # fmt: skip


class Programs:
    """PostgreSQL's programs, which keep what they were asked and end with the code of their name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path, uid: int | None = None) -> None:
        self.uid, self.root = uid, root
        self.ran: list[Any] = []
        self.owned: list[Path] = []
        self.codes: dict[str, int] = {}
        self.seen: dict[str, Any] = {}
        self.looks: list[Callable[[], None]] = []
        self.server: int | None = None
        monkeypatch.setattr(postgres_cluster, "Account", self)
        monkeypatch.setattr(postgres_cluster, "find_programs", lambda root, account: Path("/bin"))
        monkeypatch.setattr(file_locks, "wait_until", self._wait_until)

    def __call__(self) -> Programs:
        return self

    def of_server(self) -> Programs:
        return self

    def own(self, *paths: Path) -> None:
        self.owned += paths

    def run(self, command: list[str], *, cwd: Path | None = None, output: int = -1, keep: int | None = None) -> int:
        name = command[1] if command[0] == "/bin/pg_ctl" else Path(command[0]).name
        self.ran.append((name, command[1:], cwd))
        if name in ("start", "initdb"):
            self.seen = {path.name: path.read_text() for path in self.root.rglob("*") if path.is_file()}
        if output >= 0:
            os.write(output, f"{name} ran\n".encode())
        code = self.codes.get(name, 0)
        if name == "start" and not code:
            assert keep is not None
            self.server = os.dup(keep)
        if name == "stop" and not code:
            self.die()
        return code

    def die(self) -> None:
        """End the server with all its processes."""
        if self.server is not None:
            os.close(self.server)
            self.server = None

    def _wait_until(self, fact: Callable[[], bool], seconds: float) -> bool:
        assert seconds == 60
        while not (found := fact()) and self.looks:
            self.looks.pop(0)()
        return found


def cluster_of(root: Path, *, durable: bool = True, made_by: str = "18") -> Cluster:
    """A cluster whose data folder is there."""
    (root / "cluster" / "data").mkdir(parents=True)
    (root / "cluster" / "data" / "PG_VERSION").write_text(f"{made_by}\n")
    (root / "cluster" / "password").write_text("pw")
    return Cluster(root, durable=durable)


@pytest.mark.parametrize("uid", [None, 65534])
@pytest.mark.parametrize(("durable", "more"), [(True, ""), (False, RELAXED[0])])
def test_a_server_is_started_at_its_port_with_its_settings_and_stays_alive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, uid: int | None, durable: bool, more: str
) -> None:
    """Forget the process id of an earlier server: somebody else may have it by now."""
    programs, cluster = Programs(monkeypatch, tmp_path, uid), cluster_of(tmp_path, durable=durable)
    data = tmp_path / "cluster" / "data"
    (data / "postmaster.pid").write_text("1\n")
    port = postgres_cluster.free_port()
    (tmp_path / "port").write_text(str(port))
    files = psutil.Process().num_fds()
    cluster.launch()
    here = str(data) if uid is None else "/proc/self/cwd"
    options = [f"--pgdata={here}", "--wait", "--timeout=60"]
    started = ["start", *options, f"--options=-p {port} {PLAIN}{more}"]
    assert programs.ran == [("start", started, data)]
    assert "postmaster.pid" not in programs.seen
    assert cluster.is_alive()
    assert psutil.Process().num_fds() == files + 1, "of the server alone"
    assert cluster.dsn() == f"postgresql://postgres:pw@127.0.0.1:{port}/counterseal"
    cluster.log.write_text("first\n")
    cluster.stop()
    assert programs.ran[1:] == [("stop", ["stop", *options, "--mode=fast"], data)]
    assert cluster.log.read_text() == "first\nstop ran\n", "what was logged before stays"
    assert not cluster.is_alive()
    cluster.stop()
    assert len(programs.ran) == 2, "there is nothing to stop"


def test_a_server_is_waited_for_until_its_last_process_has_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    programs, cluster = Programs(monkeypatch, tmp_path), cluster_of(tmp_path)
    cluster.launch()
    programs.codes["stop"] = 1
    programs.looks = [lambda: None, programs.die]
    cluster.stop()
    assert not cluster.is_alive()
    cluster.launch()
    with pytest.raises(ConfigurationError) as stays:
        cluster.stop()
    assert stays.value.message.startswith(f"PostgreSQL did not stop. The end of {cluster.log}:\n")
    assert stays.value.remedy == HINT
    programs.ran.clear()
    with pytest.raises(ConfigurationError) as there:
        cluster.launch()
    assert there.value.message.startswith("PostgreSQL is there but does not answer.")
    assert programs.ran == [], "it is started once"
    programs.die()


def test_a_server_answers_once_it_is_ready_or_is_seen_to_be_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    programs, cluster = Programs(monkeypatch, tmp_path), cluster_of(tmp_path)
    assert not cluster.answers()
    assert programs.ran == [], "nobody is there to be asked"
    cluster.launch()
    programs.ran.clear()
    port = (tmp_path / "port").read_text()
    for refuses in (1, 2):
        programs.codes["pg_isready"] = refuses
        programs.looks = [lambda: None, lambda: programs.codes.update(pg_isready=0)]
        assert cluster.answers()
    probe = ("pg_isready", ["--host=127.0.0.1", f"--port={port}", "--quiet"], None)
    assert programs.ran == [probe] * 6
    programs.codes["pg_isready"] = 1
    with pytest.raises(ConfigurationError) as silent:
        cluster.answers()
    assert silent.value.message.startswith("PostgreSQL is there but does not answer.")
    programs.looks = [lambda: None, programs.die]
    assert not cluster.answers(), "it has died meanwhile"


def test_a_port_that_somebody_else_has_taken_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    programs, cluster = Programs(monkeypatch, tmp_path), cluster_of(tmp_path)
    (tmp_path / "port").write_text("5001")
    free = dict.fromkeys(range(5001, 5100), True) | {5001: False}
    drawn = iter(range(5002, 5100))
    monkeypatch.setattr(postgres_cluster, "_is_free", free.__getitem__)
    monkeypatch.setattr(postgres_cluster, "free_port", lambda: next(drawn))
    run = programs.run

    def taken(command: list[str], **given: Any) -> int:
        port = int(command[-1].split()[1])
        free[port] = port >= last
        programs.codes["start"] = 1 if port < last else code
        return run(command, **given)

    monkeypatch.setattr(programs, "run", taken)
    last, code = 5004, 0
    cluster.launch()
    assert [command[-1].split()[1] for _, command, _ in programs.ran] == ["5002", "5003", "5004"]
    assert (tmp_path / "port").read_text() == "5004"
    assert stat.S_IMODE((tmp_path / "port").stat().st_mode) == 0o600
    programs.die()
    programs.ran.clear()
    code = 1
    with pytest.raises(ConfigurationError) as other:
        cluster.launch()
    assert len(programs.ran) == 1, "it fails at a port that is free, and would again"
    assert other.value.message == f"PostgreSQL did not start. The end of {cluster.log}:\n" + "\n".join(
        ["start ran"] * 4
    )
    assert other.value.remedy == HINT
    assert not cluster.is_alive()
    last = 6000
    programs.ran.clear()
    with pytest.raises(ConfigurationError):
        cluster.launch()
    assert len(programs.ran) == 5, "it is tried five times"
    assert not cluster.is_alive()


@pytest.mark.parametrize("uid", [None, 65534])
@pytest.mark.parametrize(("durable", "more"), [(True, []), (False, RELAXED[1])])
def test_a_data_folder_is_made_whole_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, uid: int | None, durable: bool, more: list[str]
) -> None:
    programs, cluster = Programs(monkeypatch, tmp_path, uid), Cluster(tmp_path, durable=durable)
    made = tmp_path / "cluster"
    for step, tried in (("initdb", ["initdb"]), ("sh", ["initdb", "sh"])):
        programs.ran.clear()
        programs.codes = {step: 1}
        with pytest.raises(ConfigurationError) as failed:
            cluster.launch()
        assert failed.value.message.startswith("PostgreSQL could not make its data folder. The end of ")
        assert [name for name, *_ in programs.ran] == tried
        assert not made.exists()
        assert not cluster.is_alive()
    assert len([*tmp_path.glob("init-*")]) == 1
    programs.codes, programs.owned = {}, []
    programs.ran.clear()
    cluster.launch()
    assert not [*tmp_path.glob("init-*")], "what was begun before is gone"
    assert stat.S_IMODE((made / "data").stat().st_mode) == 0o700
    (initdb, create, start) = programs.ran
    staging = initdb[2].parent
    assert programs.owned == [staging, staging / "data", staging / "password"]
    here = str(staging / "data") if uid is None else "/proc/self/cwd"
    assert initdb == (
        "initdb",
        [
            f"--pgdata={here}", "--username=postgres", "--auth=scram-sha-256", f"--pwfile={here}/../password",
            "--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", *more,
        ],
        staging / "data",
    )  # fmt: skip
    sql = 'echo "CREATE DATABASE counterseal" | "$0" --single -D "$1" -c exit_on_error=true postgres'
    assert create == ("sh", ["-c", sql, "/bin/postgres", here], staging / "data")
    assert start[2] == made / "data"
    word = (made / "password").read_text()
    assert (len(word), stat.S_IMODE((made / "password").stat().st_mode)) == (32, 0o600)
    assert f"postgres:{word}@" in cluster.dsn()
    programs.die()
    shutil.rmtree(made)
    cluster.launch()
    assert (made / "password").read_text() != word
    programs.die()


@pytest.mark.parametrize("made_by", ["9.6", "17", "19", "180"])
def test_data_of_another_major_version_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, made_by: str
) -> None:
    programs, cluster = Programs(monkeypatch, tmp_path), cluster_of(tmp_path, made_by=made_by)
    with pytest.raises(ConfigurationError) as refused:
        cluster.launch()
    place = tmp_path / "cluster" / "data"
    assert refused.value.message == f"{place} was made by PostgreSQL {made_by}, and this is 18."
    assert refused.value.remedy == "Dump it with the version that made it, or move it away to begin anew."
    assert programs.ran == []
    assert not cluster.is_alive()


@pytest.mark.parametrize("count", [None, 0, 15, 16])
def test_a_failure_shows_the_end_of_the_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, count: int | None) -> None:
    Programs(monkeypatch, tmp_path)
    cluster = Cluster(tmp_path, durable=True)
    if count is not None:
        cluster.log.write_bytes(b"".join(b"line %d \xff\n" % number for number in range(count)))
    failure = cluster._failure("It fails")
    lines = [f"line {number} \ufffd" for number in range(count or 0)][-15:]
    assert failure.message == "\n".join([f"It fails. The end of {tmp_path}/server.log:", *lines])
    assert failure.remedy == HINT


def test_a_private_file_is_nobody_else_s_at_any_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Write beside it, so that whoever reads it finds the old text or the new one."""
    place, seen = tmp_path / "password", list[Any]()
    place.write_text("old")
    write = Path.write_text

    def looked(path: Path, text: str, **given: Any) -> int:
        seen.append((path.name, stat.S_IMODE(path.stat().st_mode), place.read_text()))
        return write(path, text, **given)

    monkeypatch.setattr(Path, "write_text", looked)
    mask = os.umask(0)
    try:
        postgres_cluster.write_private(place, "new")
    finally:
        os.umask(mask)
    assert seen == [("password.draft", 0o600, "old")]
    assert (place.read_text(), stat.S_IMODE(place.stat().st_mode)) == ("new", 0o600)
    assert [path.name for path in tmp_path.iterdir()] == ["password"]


def test_a_port_is_free_if_nobody_listens_at_it() -> None:
    assert [postgres_cluster._is_free(port) for port in (-1, 0, 65536, 70000)] == [False] * 4
    port = postgres_cluster.free_port()
    assert postgres_cluster._is_free(port)
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        assert not postgres_cluster._is_free(port)
