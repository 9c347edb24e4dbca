"""The scorecard: chainrule is broken on purpose, many times, and what went wrong is counted.

`python -m reliability [ROW ...|all] [--small]` runs rows of rows.py and writes docs/reliability.md. A row tries
something again and again from a fixed seed (frame.py). Each has controls (controls.py): the same row with something
broken in chainrule, which must find something wrong. tests/reliability runs every row at a small scale.
"""

import os

# some rows fork: threads of OpenMP, which a forked process lacks, would be waited for
os.environ.setdefault("OMP_NUM_THREADS", "1")
