"""Commands about messages.

dlq          flaremq dlq
lines        a message on one line, safe for a terminal
message      flaremq message
send         flaremq send
tail         flaremq tail
trace        flaremq message trace
transaction  flaremq transaction
waiting      flaremq message waiting and cancel
"""
