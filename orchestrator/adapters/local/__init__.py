"""The embedded world: SQLite for documents and messages, files for payloads."""
