"""Floor 7: starts NameServers and brokers, in this process or in separate ones. The only package that
imports a composition root.

config       files, environment and flags into configuration sections
groupbroker  a broker whose log is kept by a Raft group
membership   settings of the members of a group on one machine
processes    servers as separate processes
together     a NameServer and brokers in one event loop
"""
