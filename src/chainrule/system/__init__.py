"""The machine and its process: devices, threads, signals, and packages that add to this one.

devices.py    where networks compute
parallel.py   work on all cores
signals.py    Ctrl-C, termination, and what a process does before it ends
plugins.py    entry points of other packages
"""
