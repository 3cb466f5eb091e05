"""Floor 6: RocketMQ topics and store files in Spark. Imports client and arrow.

clients      one client per cluster and process
errors       Spark's exceptions in one line
jobs         a second Spark job, while the first runs
options      options as Spark passes them
schema       Spark types and columns
source       format("rocketmq")
storesource  format("rocketmq-store")
"""
