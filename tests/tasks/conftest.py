"""Fixtures of the command line, and a masked model, for the tests of tasks."""

from tests.cli.conftest import fails, plain_terminal, run, run_alone  # noqa: F401
from tests.masked.conftest import toy  # noqa: F401
