"""Estimation: from a text to the probabilities of its n-grams.

In reading order:

    levels.py        the n-grams of each length as flat arrays, and the slow, obvious way to count them
    smooth.py        the equations of the smoothing methods
    methods.py       the method that settings name, and where its parameters come from
    tuning.py        Jelinek-Mercer's weights, tuned on held-out text
    passes.py        a method applied to all levels, from short n-grams to long ones
    prune.py         n-grams left out, by count or by entropy
    count.py         fast counting: every length from one sort
    kernels.py       Numba kernels of count.py: windows of words sorted and counted, links to suffixes
    partitions.py    fast counting by workers that share files, partition by partition
"""
