"""Floor 3: tag and SQL92 filters. Imports model.

ast          expressions as a tree of values
bloom        bloom filters over group#topic
evaluate     an expression's result for a message: true, false or unknown
groupfilter  compiled filters of groups, and their bit maps
parser       text into a tree
predicate    a compiled expression
selector     whether a message matches a subscription
tags         tag expressions
tokens       the lexer
values       values as Java parses and compares them
"""
