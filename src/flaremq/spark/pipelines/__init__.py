"""Ready pipelines, which do not import each other.

archive  topics into an archive
compact  small archive files into large ones
replay   archived messages sent again
"""
