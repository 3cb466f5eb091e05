"""Fakes and builders for our own suite.

builders    small valid values
disk        disks that fail
wireclient  a client that is only the wire
"""
