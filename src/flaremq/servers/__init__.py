"""Floor 7: NameServers and brokers run from here, in this process or in their own. The only package that
imports a composition root.

processes  servers as processes of their own
together   a NameServer and brokers in one event loop
"""
