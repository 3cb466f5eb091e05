"""The reference twin: read this one; _tags_c.pyx must agree with it on every input."""


def java_hash(text: str) -> int:
    """Java's String.hashCode: h = 31*h + unit over UTF-16 code units, as a signed 32-bit int."""
    data = str.encode(text, "utf-16-be", "surrogatepass")
    h = 0
    for i in range(0, len(data), 2):
        h = (31 * h + (data[i] << 8 | data[i + 1])) & 0xFFFF_FFFF
    return h - (1 << 32) if h >> 31 else h
