from __future__ import annotations

from dataclasses import dataclass

from flaremq.base.live import Derived, Live


@dataclass(frozen=True)
class Section:
    limit: int


def test_a_reader_sees_a_change_without_being_told() -> None:
    live = Live(Section(1))

    class Reader:
        def __init__(self, settings: Live[Section]) -> None:
            self._settings = settings

        def limit(self) -> int:
            return self._settings.now.limit

    reader = Reader(live)
    live.now = Section(2)
    assert reader.limit() == 2


def test_a_derived_value_is_made_once_for_each_version() -> None:
    live, made = Live(Section(1)), list[int]()

    def text(section: Section) -> str:
        made.append(section.limit)
        return f"limit={section.limit}"

    derived = Derived(live, text)
    assert [derived.now, derived.now] == ["limit=1", "limit=1"]
    live.now = Section(2)
    assert [derived.now, derived.now] == ["limit=2", "limit=2"]
    assert made == [1, 2]


def test_a_derived_value_that_cannot_be_made_is_tried_again() -> None:
    live, fails = Live(Section(1)), [False]

    def limit(section: Section) -> int:
        if fails[0]:
            raise ValueError
        return section.limit

    derived = Derived(live, limit)
    live.now, fails[0] = Section(2), True
    try:
        _ = derived.now
    except ValueError:
        fails[0] = False
    assert derived.now == 2
