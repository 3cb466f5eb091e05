"""Pulls, from frames to answers.

lane      all pulls of a turn
longpoll  pulls waiting for messages
permits   whether a consumer may pull, and with which filter
request   one pull as a value
"""
