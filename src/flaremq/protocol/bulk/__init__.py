"""Many frames in one call, as int64 tables: the wire half of a turn. Each room but `columns` is a twin.

answers   a broker's answers to sends and pulls
burst     the frames of a turn, split into rows
columns   the tables
frames    send requests of a client
pulls     pull requests into rows
receipts  answers to sends into rows
requests  requests of other codes into rows that tell where their fields lie
sends     send requests into drafts
"""
