"""A Ray cluster: one on this machine's cores for the time of a block, or one that runs already."""

from __future__ import annotations

import logging
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chainrule._version import __version__
from chainrule.errors import ChainruleError, importing
from chainrule.ray.executor import RayExecutor
from chainrule.system.disk import scratch_folder
from chainrule.system.parallel import cores

_SECONDS = 5.0  # a cluster has to answer within this time
_ATTEMPTS = 3
_SETTINGS = b"\x04"  # the type of the first frame of both sides of HTTP/2, which Ray uses
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + _SETTINGS + bytes(5)
_NO_TOKEN = "InvalidAuthToken"  # Ray's name of the error
_MOST_CAUSES = 10
_STORE = 256 << 20  # bytes of Ray's object store: pieces and results go through it, arrays do not


class ClusterError(ChainruleError):
    """A Ray cluster that cannot be reached, or whose workers cannot do the work."""


@contextmanager
def ray_executor(
    address: str | None = None, *, work: str | Path | None = None, workers: int | None = None
) -> Iterator[RayExecutor]:
    """Yield an executor of the workers of a Ray cluster; without an address, of one local process for each core.

    The folder of the arrays is made in `work`, which all machines of a cluster have to see.
    """
    with importing("ray", "scale", "the executor ray"):
        import ray
    began = not ray.is_initialized()
    parent = Path(work) if work is not None else Path(tempfile.gettempdir())
    if not parent.is_dir():
        raise ClusterError(f"{parent}: no such folder to work in; all workers have to see it")
    if began:
        _begin(ray, address, workers)
    try:
        with scratch_folder(parent.absolute()) as folder:
            _check_nodes(ray, folder)
            yield RayExecutor(folder, int(ray.cluster_resources().get("CPU", 1)))
    finally:
        if began:
            ray.shutdown()


ray_engine = ray_executor  # the earlier name, kept for one version


def _begin(ray: Any, address: str | None, workers: int | None) -> None:
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        os.environ.setdefault("RAY_worker_niceness", "0")  # workers do all the work, so they need no lower priority
        with _named("Ray cannot start on this machine"):
            _begin_here(ray, num_cpus=workers or cores(), object_store_memory=_STORE, **quiet)
        return
    _check_answers(address)
    with _named(f"no Ray cluster can be used at {address}"):
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)


def _begin_here(ray: Any, **options: Any) -> None:
    """Start Ray's processes; try again if they took longer than Ray waits for them, as on a busy machine."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            ray.init(**options)
            return
        except Exception as error:
            ray.shutdown()
            if "timed out" not in str(error) or attempt == _ATTEMPTS:
                raise


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Turn the errors of a block into one line; Ray raises many kinds, some with advice of several lines."""
    try:
        yield
    except Exception as error:
        raise ClusterError(f"{what}: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    """Say in a line why Ray failed; only the cause of an error shows that a cluster wants a token."""
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and len(causes) < _MOST_CAUSES:
        causes.append(cause)
    if any(_NO_TOKEN in str(cause) for cause in causes):
        return "it wants its own token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN as they are on its machines"
    return str(error).strip().split("\n")[0]


def _check_answers(address: str) -> None:
    """Refuse an address at which nothing answers; Ray itself would try for a minute."""
    if address == "auto" or "://" in address.removeprefix("ray://"):
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        raise ClusterError(f"--address should be HOST:PORT, ray://HOST:PORT or auto, not {address!r}")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS) as connection:
            connection.sendall(_GREETING)
            answer = connection.recv(9)
        reason = "" if answer[3:4] == _SETTINGS else "what listens there is not Ray"
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    if reason:
        raise ClusterError(
            f"no Ray cluster answers at {address}: {reason}; start one (ray start --head), or leave out --address "
            "to use this machine"
        )


def _check_nodes(ray: Any, folder: Path) -> None:
    """Refuse, before work starts, a machine that does not see the folder or has another chainrule."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    mark = folder / "mark"
    mark.write_text(__version__, encoding="utf-8")
    nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    on = {name: NodeAffinitySchedulingStrategy(name, soft=False) for name in nodes}
    look = ray.remote(num_cpus=0)(_look)
    found = {name: look.options(scheduling_strategy=on[name]).remote(str(mark)) for name in nodes}
    for name, answer in found.items():
        try:
            problem = ray.get(answer)
        except Exception as error:
            problem = str(error).strip().split("\n")[-1]
        if problem:
            raise ClusterError(f"the machine {nodes[name]} of the cluster cannot work: {problem}")
    mark.unlink()


def _look(mark: str) -> str:
    """Say what is wrong with this machine; an empty text if nothing is."""
    from chainrule._version import __version__ as version

    if not os.path.exists(mark):  # noqa: PTH110
        return f"it does not see {os.path.dirname(mark)}; name a folder of a shared file system by --work"  # noqa: PTH120
    expected = Path(mark).read_text(encoding="utf-8")
    return "" if version == expected else f"it has chainrule {version}, and this machine has {expected}"
