"""Commands about messages.

documents  a message as JSON and as a line
message    flaremq message
send       flaremq send
tail       flaremq tail
"""
