"""Codecs of messages, which an algorithm's option `codec: {name: ...}` selects."""
