"""One port, several processes: `chainrule serve` as an application that uvicorn starts in N workers.

    python examples/serving/many.py ladder/lstm ladder/mixture --workers 4 --port 8000

Each worker loads the models; folders are memory-mapped, so that workers share the pages of n-gram models.
The system hands each new connection to one of them, and a worker that dies is started again.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

_FOLDERS = "CHAINRULE_SERVED"  # how the workers, which are started anew, learn what to serve


def app() -> Any:
    """Return the application of one worker."""
    from chainrule.serve.app import make_app
    from chainrule.serve.batching.scheduler import Limits
    from chainrule.serve.guard import LOCAL, Rules
    from chainrule.serve.models import Models, named_folders

    models = Models(named_folders(json.loads(os.environ[_FOLDERS])), Limits(), "cpu", "float32")
    models.load()
    return make_app(models, Rules(frozenset(LOCAL), os.environ.get("CHAINRULE_KEY")))


def main() -> None:
    """Serve until Ctrl-C."""
    import uvicorn

    parser = argparse.ArgumentParser(description="Models behind one port, in several processes.")
    parser.add_argument("folders", nargs="+", metavar="DIR")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    os.environ[_FOLDERS] = json.dumps(options.folders)
    uvicorn.run(
        "many:app",
        factory=True,
        app_dir=os.path.dirname(os.path.abspath(__file__)),  # noqa: PTH100, PTH120
        workers=options.workers,
        host="127.0.0.1",
        port=options.port,
        log_level="warning",
        access_log=False,
        lifespan="on",
    )


if __name__ == "__main__":
    main()
