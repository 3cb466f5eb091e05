"""Sending.

balance      choice of a queue, and avoidance of failing brokers
batching     messages gathered into batches while a request is in flight
numbering    messages that are stored once, however often they are sent
packing      messages checked, compressed and made into requests
pipeline     many sends in flight
placement    queue and address for each attempt
producer     the Producer
requests     messages that are answered
retry        sends that wait out an outage
transaction  messages that are delivered if a transaction succeeds
"""
