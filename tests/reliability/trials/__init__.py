"""Trials that break chainrule at random, many times, and count what went wrong.

kills.py          processes killed while they write
faults.py         every operation on files that fails, once or from then on, or at which a writer is killed
syncs.py          files and folders that were not on disk when they got their name
mutations.py      manifests, tokenizers, arrays and parquet files with something in them changed
texts.py          pipes, and files that change while they are read
terminations.py   commands told to stop at a random moment
controls.py       things to break in chainrule, each of which a trial must find

`PYTHONPATH=tests python -m reliability.trials` runs them at full scale, test_trials.py runs each at a small one.
"""
