"""Work on more than one machine: an engine that has pieces of work done by the workers of a Ray cluster.

What is done is in other rooms (`system.parallel.Engine` is the seam): counting, smoothing, tokenising, scoring. An
engine only moves pieces. Arrays do not travel: they lie in files of a folder that all workers see.

    packing.py     functions and pieces as bytes, in which memory-mapped arrays are the names of their files
    connection.py  a Ray cluster: one of this machine, or one that runs already
    executor.py    `RayEngine`: pieces of work as Ray tasks
"""
