"""Sends, from frames to answers.

acks           answers held until their messages are safe
bulkrewrites   the rewrites of delayed and prepared messages, many at once
deduplication  numbered messages that are sent again, and not stored again
lane           all ordinary sends of a turn
plain          all others, one by one
pushes         what replies say, and the frames that push them (twin)
redirect       messages that wait: to the topic in which they do (twin)
replies        replies of a turn: pushed to those who asked, and kept
rewrites       rules that change a message on its way into the log, or keep it out
rows           a turn's sends, and what is known of their topics
windows        which numbered messages of producers are stored (twin)
"""
