"""Messages that are delivered later.

copies     a message that has waited, delivered to its own topic
elsewhere  messages delivered to other brokers, by a slave that acts for its master
entering   timer messages on their way into the timer wheel
firing     the messages of one second, on their way out of the timer wheel
levels     delay levels: where their messages wait, and their delivery
requests   requests about timer messages: recall, progress, counts
timerdoor  timer messages, and the markers that cancel them, on their way in
timers     messages for any moment: into the timer wheel, and out of it
waiting    records of messages that wait, many a call (twin)
"""
