"""Traces and metrics to OpenTelemetry. Imported only where something is to be exported."""
