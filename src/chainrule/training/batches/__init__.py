"""Batches of a text: which tokens stand in each, and how they are gathered into arrays.

In reading order:

    rows.py         rows of a batch, steps, epochs, and what a layout is
    layouts.py      how a text is cut into rows, batches and epochs
    sample.py       a sample of a text, for validations
    gather.py       from the rows of a batch to arrays of ids, with NumPy
    on_device.py    batches as torch tensors, gathered on the device or copied to it
"""
