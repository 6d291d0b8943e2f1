"""Commands that need no server: `up` is one, `schema` and `validate` use the domain directly."""
