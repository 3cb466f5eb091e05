"""All other requests. A handler class has a `table()` of request codes and coroutines.

admin_broker  the broker itself
admin_group   settings of consumer groups
admin_topic   topics
clients       heartbeats, unregistration, membership
consumers     requests passed on to consumers
offset        offsets and queue locks
paging        large tables, page by page
progress      lag of groups
query         messages by key, id and time
reply         replies passed on to the client that waits
sendback      messages that a consumer could not process
unsupported   codes this broker does not serve, each with the reason
"""
