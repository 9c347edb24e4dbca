"""Speed and quality beside a peer's, in one run: `python -m benchmarks NAME`."""
