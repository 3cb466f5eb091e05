"""Sends, from frames to answers.

acks   answers held until their messages are safe
lane   all ordinary sends of a turn
plain  all others, one by one
rows   a turn's sends, and what is known of their topics
"""
