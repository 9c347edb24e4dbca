"""Trials that break chainrule at random, many times, and count what went wrong.

kills.py          processes killed while they write
faults.py         every operation on files that fails, once or from then on, in each writer
mutations.py      manifests, tokenizers, arrays and parquet files with something in them changed
texts.py          pipes, and files that change while they are read
terminations.py   commands told to stop at a random moment

`PYTHONPATH=tests python -m reliability.trials` runs them at full scale, test_trials.py runs each at a small one.
"""
