"""Floor 5: records as Arrow columns. Imports store.offline and the pure encoders.

    batches  records into record batches
    bodies   rows on their way out: the columns of a batch become bodies and property texts, a column at a
             time
    columns  walked records into column buffers (twin)
    odd      records that are not plain: compressed bodies, and several messages in one record. A message at a
             time
    schema   column names and types
    stores   a store folder as batches, without its broker: planned in one process, read piece by piece in
             others
    wanted   what both twins of the columns are asked for
"""
