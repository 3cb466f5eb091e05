"""Files on disk: mapped, locked, preallocated, in sequence. Imported by the store only.

bufferpool   write buffers in locked memory (transientStorePoolEnable)
checkpoint   how far log, queues and index are safe
coldfile     a file as it lies on the disk, read past the page cache
disk         the only door to the disk; tests put a faulty one behind it
filequeue    equal-sized files forming one sequence of bytes
lock         the folder's lock and abort marker
mappedfile   one mapped file
preallocate  the next log files, made ahead
"""
