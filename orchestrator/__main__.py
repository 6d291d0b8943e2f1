"""`python -m orchestrator` is `weft`, for when the entry point is not installed."""

from orchestrator.local.cli import main

if __name__ == "__main__":
    main()
