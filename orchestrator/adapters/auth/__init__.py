"""Proof of identity: bearer tokens, the platform's principal header, the development identity."""
