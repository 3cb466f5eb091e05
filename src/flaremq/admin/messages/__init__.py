"""Messages, as an operator sees them.

deadletters   what groups gave up: found, sent again, put away
messages      single messages, found, tracked and redelivered
resend        copies of dead letters, sent again
scans         messages read without a group
traces        the journey of a message, from trace records
transactions  those that have not ended: listed, and decided if they are parked
waiting       messages that wait to be delivered
"""
