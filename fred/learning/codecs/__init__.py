"""How messages are coded: a file per codec, which `codec: {name: ...}` of an algorithm names."""
