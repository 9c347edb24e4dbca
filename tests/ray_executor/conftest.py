"""One Ray for all tests of this folder, and an executor that shares files as Ray's does but works in threads."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import fails, run  # noqa: F401 (fixtures)

from chainrule.ray.executor import RayExecutor
from chainrule.system.parallel import Executor


class Threads(Executor):
    """Workers that share nothing but files, as far as the code can tell."""

    name = "threads"

    def __init__(self, folder: Path) -> None:
        self.folder = folder


@pytest.fixture
def threads(tmp_path: Path) -> Threads:
    (tmp_path / "work").mkdir()
    return Threads(tmp_path / "work")


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """A cluster of two workers."""
    ray = pytest.importorskip("ray")
    with warnings.catch_warnings():
        # Ray tells what its next version will do about accelerators
        warnings.filterwarnings("ignore", category=FutureWarning, module="ray")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    yield
    ray.shutdown()


@pytest.fixture
def ray_workers(local_ray: None, tmp_path: Path) -> Iterator[RayExecutor]:
    from chainrule.ray.connection import ray_executor

    with ray_executor(work=tmp_path) as executor:
        yield executor
