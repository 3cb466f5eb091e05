"""Floor 6: RocketMQ topics and store files in Spark. Imports client and arrow.

    clients      one client per cluster and process
    errors       Spark's exceptions in one line
    jobs         a second Spark job beside the first
    options      options as Spark passes them
    peeks        single looks into queues: how large messages are, where a time is to the message, whether
                 there is more
    schema       Spark types and columns
    source       format("rocketmq")
    storesource  format("rocketmq-store")
    watch        waiting for more: a pull that its broker holds for each queue, until there is something new
                 in any
"""
