"""The run folder, and checkpoints from which a run is resumed bit for bit.

In reading order:

    run_folder.py       the files of a run folder, checks before a run begins, and its curves
    checkpoint.py       checkpoints written and read, and what must be unchanged to resume from one
    flatten.py          nested values, such as a network's memory, as named arrays, and back
"""
