"""What goes on inside a network while it reads: gradients through time, gates, and attention maps.

In reading order:

    diagnosis.py   `diagnose` a model on a text, and the results as records
    traces.py      a forward pass of a network that keeps its states, gates and attention weights
"""
