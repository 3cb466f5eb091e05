"""Fakes and builders for our own suite.

builders    small valid values
disk        disks that fail
wireclient  a minimal client of the wire protocol
"""
