"""Floor 7: starts NameServers and brokers, in this process or in separate ones. The only package that
imports a composition root.

config     files, environment and flags into configuration sections
processes  servers as separate processes
together   a NameServer and brokers in one event loop
"""
