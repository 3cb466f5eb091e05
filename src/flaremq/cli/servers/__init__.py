"""Servers in the foreground.

broker   flaremq broker
promote  flaremq broker promote
serve    flaremq namesrv, and how servers run
up       flaremq up
"""
