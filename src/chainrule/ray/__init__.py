"""Work on more than one machine: an engine that gives pieces of work to the workers of a Ray cluster.

The work itself (counting, smoothing, tokenising, scoring) is in other rooms, behind `system.parallel.Engine`; the
engine here only moves pieces. Arrays are not sent: they are in files of a folder that all workers see.

    packing.py     functions and pieces as bytes; memory-mapped arrays are replaced by the names of their files
    connection.py  a Ray cluster: one on this machine, or one that runs already
    executor.py    `RayEngine`: pieces of work as Ray tasks
"""
