"""Activities of the sample workflows under `samples/`."""
