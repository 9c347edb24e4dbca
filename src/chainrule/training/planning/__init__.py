"""What is decided before the first step, from the text, the machine and the time that is given.

pace.py       how long a run is: steps, or a clock
autotune.py   how steps are computed, and what validations read
advice.py     notes to the user

The rule for settings that are left open is in networks/defaults.py.
"""
