"""Trials that break chainrule at random, many times, and count what went wrong.

kills.py       processes killed while they write
faults.py      every operation on files that fails, once or from then on, in each writer
mutations.py   manifests, tokenizers, arrays and parquet files with something in them changed

`PYTHONPATH=tests python -m reliability.trials` runs them at full scale, test_trials.py runs each at a small one.
"""
