"""Statistics.

groupoffsets  offsets of groups, from brokers or from a file
plots         statistics as plots
stats         the pipeline
tables        statistics as tables and Parquet files
text          statistics for the terminal
"""
