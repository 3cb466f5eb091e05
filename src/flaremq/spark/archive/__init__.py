"""Archives of topics: plain Parquet, Delta or Iceberg.

delta       Delta tables
iceberg     Iceberg tables
identity    what an archive is, and which query fills it
lease       one writer at a time
log         the commit log of a plain archive
partitions  a folder for each topic and hour
plain       Parquet files and our own log
publish     committed files under their visible names
reader      archives as DataFrames
sink        a stream into an archive
staging     rows into Parquet files
table       the interface of a table format
"""
