"""Floor 3: tag and SQL92 filters. Imports model.

ast          expressions as a tree of values
bloom        bloom filters over group#topic
evaluate     an expression's verdict on a message: true, false or unknown
groupfilter  compiled filters of groups, and their bit maps
parser       text into a tree
predicate    an expression ready to be asked of many messages
selector     the question a queue's reader asks of each message
tags         tag expressions
tokens       the lexer
values       values as Java parses and compares them
"""
