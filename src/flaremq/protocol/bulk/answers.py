"""Answers of a broker to sends and pulls, many at once, without an object for each.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one.
"""

import os
from typing import TYPE_CHECKING

from flaremq.protocol.bulk._answers_py import encode_answer

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.protocol.bulk._answers_py import SendAnswers, encode_answers, encode_pull_header
else:
    try:
        from flaremq.protocol.bulk._answers_c import SendAnswers, encode_answers, encode_pull_header
    except ImportError:
        from flaremq.protocol.bulk._answers_py import SendAnswers, encode_answers, encode_pull_header

__all__ = ["SendAnswers", "encode_answer", "encode_answers", "encode_pull_header"]
