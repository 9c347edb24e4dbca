"""The running batch of each model: requests join it and leave it while it goes on.

In reading order:

    requests.py   requests, and the events that answer them
    prefixes.py   states after prompts, from which prompts with the same start continue
    rows.py       the texts that are being generated, as rows of one state
    scheduler.py  the thread of a model: reads prompts, generates, and does other work in bulk
"""
