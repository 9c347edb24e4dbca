"""The scorecard: chainrule is broken on purpose, many times, and what went wrong is counted.

`python -m reliability [ROW ...|all] [--small]` runs rows of rows.py and writes docs/reliability.md. A row tries
something again and again from a fixed seed (frame.py). Each has controls (controls.py): the same row with something
broken in chainrule, which must find something wrong. tests/reliability runs every row at a small scale.
"""
