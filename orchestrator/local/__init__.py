"""The embedded mode: the host that runs the function app on one machine, and the command line."""
