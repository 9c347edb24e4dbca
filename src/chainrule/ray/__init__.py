"""Work on more than one machine: an executor that gives pieces of work to the workers of a Ray cluster.

The work itself is in other rooms, which give it to a `system.parallel.Executor`: counting, smoothing, tokenising,
scoring. An executor only moves pieces. Arrays do not travel: they lie in files of a folder that all workers see.

    connection.py  a Ray cluster: one of this machine, or one that runs already
    executor.py    `RayExecutor`: pieces of work as Ray tasks, packed as bytes
"""
