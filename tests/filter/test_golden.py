"""Answers of Apache RocketMQ 5.3.3 (SelectorParser, MessageEvaluationContext) to many expressions.

A line of golden.jsonl: the expression, whether Java read or refused it or ignored the rest of it, and
its result for some properties; `raise` is an exception of the evaluation.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flaremq.base.errors import InvalidExpression
from flaremq.filter.predicate import Predicate, compile_predicate
from flaremq.model.properties import encode_properties

LINES: list[list[Any]] = [
    json.loads(line) for line in Path(__file__).with_name("golden.jsonl").read_text().splitlines()
]
RESULTS = {True: "true", False: "false", None: "null"}
READ_BY_US = {"a=0l", "a > 1 -- c"}
"""Of the expressions whose rest Java ignores: here the rest is understood, and changes nothing."""


def result(predicate: Predicate, properties: dict[str, str]) -> str:
    try:
        value = predicate.evaluate(properties)
    except ValueError:
        return "raise"
    assert value is None or isinstance(value, bool)
    return RESULTS[value]


@pytest.mark.parametrize("line", [line for line in LINES if line[1] == "read"], ids=lambda line: line[0])
def test_an_expression_says_what_it_says_in_java(line: list[Any]) -> None:
    predicate = compile_predicate(line[0])
    assert [[properties, result(predicate, properties)] for properties, _ in line[2]] == line[2]


@pytest.mark.parametrize("line", [line for line in LINES if line[1] == "read"], ids=lambda line: line[0])
def test_only_what_is_true_matches_also_in_the_bytes_of_a_record(line: list[Any]) -> None:
    predicate = compile_predicate(line[0])
    for properties, expected in line[2]:
        assert predicate.matches(properties) == (expected == "true")
        assert predicate.matches_raw(encode_properties(properties)) == (expected == "true")


@pytest.mark.parametrize("line", [line for line in LINES if line[1] == "refused"], ids=lambda line: line[0])
def test_what_java_refuses_is_refused(line: list[Any]) -> None:
    with pytest.raises(InvalidExpression, match=r"at character \d+: found .+, expected .+"):
        compile_predicate(line[0])


@pytest.mark.parametrize(
    "line", [line for line in LINES if line[1] == "rest ignored"], ids=lambda line: line[0]
)
def test_what_java_reads_only_in_part_is_refused_or_read_whole(line: list[Any]) -> None:
    if line[0] in READ_BY_US:
        predicate = compile_predicate(line[0])
        assert [[properties, result(predicate, properties)] for properties, _ in line[2]] == line[2]
    else:
        with pytest.raises(InvalidExpression, match=r"at character \d+: found .+, expected .+"):
            compile_predicate(line[0])
