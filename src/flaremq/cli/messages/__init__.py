"""Commands about messages.

lines    a message on one line, safe for a terminal
message  flaremq message
send     flaremq send
tail     flaremq tail
trace    flaremq message trace
waiting  flaremq message waiting and cancel
"""
