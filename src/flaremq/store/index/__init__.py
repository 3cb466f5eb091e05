"""The index by key. `indexfile` is pure and may be imported by Spark's pipelines.

index      the folder of index files
indexfile  one index file as a buffer (twin)
"""
