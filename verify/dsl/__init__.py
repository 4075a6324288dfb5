"""The language of rule files: text to `Rule` objects and back. Only verify-rules imports it."""
