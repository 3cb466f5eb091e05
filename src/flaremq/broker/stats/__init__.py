"""Statistics and metrics of a running broker.

exporter  the port for Prometheus and health checks
metrics   RocketMQ 5's Prometheus metrics
rates     rates of the whole broker
runtime   GET_BROKER_RUNTIME_INFO
stats     VIEW_BROKER_STATS_DATA
"""
