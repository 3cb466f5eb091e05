"""Servers in the foreground.

serve  flaremq namesrv, flaremq broker
up     flaremq up
"""
