"""Floor 7: NameServers and brokers run from here, in this process or in their own. The only package that
imports a composition root.

config     files, environment and flags into configuration sections
processes  servers as processes of their own
together   a NameServer and brokers in one event loop
"""
