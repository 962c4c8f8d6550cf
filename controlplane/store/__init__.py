"""Level 2: what outlives the process.

::

    framing     one record, one line: length, checksum, JSON
    files       durable writes, behind a port
    log         the decision log: append-only, rotated, repaired at start
    checkpoint  the last good state, replaced as a whole
    history     accepted documents, by service
    records     between the model and strict JSON

Nothing here is for two threads at once: the caller writes from one thread at a time.
"""
