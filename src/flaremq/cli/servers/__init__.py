"""Servers in the foreground.

broker   flaremq broker
members  the processes of flaremq up --replicas
promote  flaremq broker promote
serve    flaremq namesrv, and how servers run
up       flaremq up
"""
