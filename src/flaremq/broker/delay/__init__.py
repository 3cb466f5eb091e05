"""Messages that are delivered later.

levels  delay levels: where their messages wait, and their delivery
"""
