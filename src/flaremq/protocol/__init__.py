"""Floor 3: RocketMQ's remoting protocol as bytes and values. Imports model; knows no socket.

beans            JSON bodies from and to dataclasses
binary_header    the compact header format
codes            request, response and language codes
command          one request or response as a value
configfiles      the JSON files that brokers and NameServers keep
fastjson         bodies in fastjson's dialect, written
fastjson_reader  the same, read
fields           custom headers from and to dataclasses
frame            frame boundaries
json_header      the JSON header format
tracerecord      the records of the trace topic
"""
