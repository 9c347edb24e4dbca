"""The machine and its process: files, devices, threads, signals, and packages that add to this one.

disk/         files that appear whole, and have an owner; tables of results
devices.py    where networks compute
memory.py     the most memory that a piece of work has in use
parallel.py   work on all cores
progress/     reports from work that takes long, and bars that show them
signals.py    Ctrl-C, termination, and what a process does before it ends
plugins.py    entry points of other packages
"""
