"""flaremq store: a store folder, read without its broker.

    commands  `flaremq store`: look into a store folder. Read-only, also beside a running broker
"""
