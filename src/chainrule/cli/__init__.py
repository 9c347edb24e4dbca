"""The command line: one file per verb; those that look into networks in networks/, for other programs in exchange/.

main.py      the verbs together, and what happens when one fails
options/     arguments and options that verbs share
screen/      what verbs print: lines, tables, numbers
progress.py  the progress bars of verbs
"""
