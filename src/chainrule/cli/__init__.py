"""The command line.

main.py    the verbs together, and what happens when one fails
verbs/     one file per verb, or for a few that belong together
options/   arguments and options that verbs share
output/    what verbs print: lines, tables, numbers, progress bars
"""
