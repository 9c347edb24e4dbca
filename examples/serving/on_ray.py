"""`chainrule serve` as a deployment of Ray Serve: replicas on one machine, or on those of a cluster.

    pip install 'chainrule[serve]' 'ray[serve]'
    python examples/serving/on_ray.py ladder/lstm ladder/mixture --replicas 2 --port 8000
    python examples/serving/on_ray.py /share/ladder/lstm --replicas 8 --address HEAD:6379 --allow-host HEAD

Each replica is a process that loads the models; Ray starts one that dies again, and sends each request to one that
has the least to do. With CHAINRULE_KEY set, clients have to send that key. All machines have to see the folders.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
from pathlib import Path
from typing import Any

TEXTS_AT_ONCE = 64  # of a replica, as of `chainrule serve --rows`; more requests wait at Ray's proxy


def application(folders: list[str], replicas: int, hosts: list[str], key: str | None) -> Any:
    """Return a deployment for `serve.run`, with so many replicas of the application."""
    from ray import serve

    def build() -> Any:
        """Load the models of a replica."""
        from chainrule.serve.app import make_app
        from chainrule.serve.batching.scheduler import Limits
        from chainrule.serve.guard import LOCAL, Rules
        from chainrule.serve.models import Models, named_folders

        models = Models(named_folders(folders), Limits(TEXTS_AT_ONCE), "cpu", "float32")
        models.load()
        return make_app(models, Rules(frozenset({*LOCAL, *hosts}), key))

    deployment = serve.deployment(
        serve.ingress(build)(), name="chainrule", num_replicas=replicas, max_ongoing_requests=TEXTS_AT_ONCE
    )
    return deployment.bind()


def absolute(folder: str) -> str:
    """Return DIR or NAME=DIR with an absolute path, which is the same in every process."""
    name, equals, path = folder.partition("=")
    return (
        f"{name}={Path(path).absolute()}" if equals and not Path(folder).exists() else str(Path(folder).absolute())
    )


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Models in replicas of Ray Serve.")
    parser.add_argument("folders", nargs="+", metavar="DIR")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--address", metavar="HOST:PORT", help="a cluster that runs; else one of this machine")
    parser.add_argument("--allow-host", action="append", default=[], metavar="NAME")
    options = parser.parse_args()
    key = os.environ.get("CHAINRULE_KEY")
    if options.address and not key:
        parser.error("others can reach a cluster: set CHAINRULE_KEY to the key that clients have to send")
    import ray
    from ray import serve

    if options.address:
        ray.init(address=options.address)
    else:
        ray.init(include_dashboard=False, num_cpus=max(options.replicas, 1), object_store_memory=100 << 20)
    host = "0.0.0.0" if options.address else "127.0.0.1"  # the proxy of each machine of a cluster listens there
    serve.start(http_options={"host": host, "port": options.port})
    serve.run(
        application([absolute(folder) for folder in options.folders], options.replicas, options.allow_host, key),
        name="chainrule",
        route_prefix="/",
    )
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    print(f"Serving at http://127.0.0.1:{options.port}; Ctrl-C stops it", flush=True)
    stopped.wait()
    serve.delete("chainrule")
    if not options.address:
        serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
