"""One Ray for all tests of this folder, and an engine that shares files as Ray's does but works in threads."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from chainrule.scale.engine import RayEngine
from chainrule.system.parallel import Engine


class Threads(Engine):
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
def ray_workers(local_ray: None, tmp_path: Path) -> Iterator[RayEngine]:
    from chainrule.scale.connection import ray_engine

    with ray_engine(work=tmp_path) as engine:
        yield engine
