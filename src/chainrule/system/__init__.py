"""The machine and its process: files, devices, threads, signals, and packages that add to this one.

disk/         files that are written whole or not at all; locks; tables of results
display.py    results as a terminal prints them and a notebook shows them: numbers, tables, coloured texts
pictures.py   small pictures as SVG files: curves, and tables as coloured cells
devices.py    the devices that networks compute on, and the peak memory of a piece of work
parallel.py   work on all cores
threads.py    how many threads matrix products use
intrinsics.py  instructions of the processor for compiled loops
progress/     progress reports of long work, and bars that show them
signals.py    Ctrl-C and termination
plugins.py    entry points of other packages
"""
