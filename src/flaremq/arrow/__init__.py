"""Floor 5: records as Arrow columns. Imports store.offline and the pure encoders.

batches      records into record batches
columns      walked records into column buffers (twin)
columnspec   the columns asked for
outgoing     record batches into bodies and properties to send
schema       column names and types
storefolder  a store folder as batches, planned once and read in pieces
unwrap       compressed bodies and inner batches
"""
