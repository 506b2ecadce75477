"""Where durable messages are kept: batches of records in, "stored up to here" out (docs/seams.md, section 5).

Each module is one `engine.records.Store`: memory.py keeps nothing. Nothing outside this package knows how a batch
is kept.
"""
