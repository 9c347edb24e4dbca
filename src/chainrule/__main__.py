"""`python -m chainrule` is the command line."""

from chainrule.cli.main import run_process

if __name__ == "__main__":
    run_process()
