"""Statistics.

groupoffsets  offsets of groups, from brokers or from a file
plots         as pictures
stats         the pipeline
tables        as Parquet files
text          for the terminal
"""
