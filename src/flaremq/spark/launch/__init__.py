"""Starting Spark.

appcds   a class archive that halves the start
cache    a folder for files that can be made again
java     a suitable Java, found
jvm      Spark's JVM, started quietly and stopped
plan     a session's settings
session  a session, opened and closed
ship     our code on other machines
"""
