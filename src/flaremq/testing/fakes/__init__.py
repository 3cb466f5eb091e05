"""Fakes and builders for our own suite.

builders    small valid values
disk        disks that fail
network     a bad network between clients and a broker
wireclient  a minimal client of the wire protocol
"""
