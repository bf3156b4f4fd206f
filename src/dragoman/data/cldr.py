"""Makes parallel phrases from the Unicode CLDR, through the package Babel.

Real localisation data that needs no download: between any two locales, with one right answer to
each phrase, and with what makes translation hard in small: words that change places, that agree
with a number, that have to be learnt by heart, and digits that have to be copied.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Literal

from babel import Locale, UnknownLocaleError
from babel.dates import format_date, format_skeleton, format_time, format_timedelta
from babel.languages import get_official_languages
from babel.lists import format_list
from babel.localedata import locale_identifiers
from babel.numbers import (
    format_compact_decimal,
    format_currency,
    format_decimal,
    format_percent,
    get_currency_symbol,
)
from babel.units import format_unit

from dragoman.config import InputError, nearest_hint

Phrase = tuple[str, str, str]
"""(kind, source, target)."""
_ListStyle = Literal["standard", "or", "unit"]
_Render = Callable[..., str]
"""Says a value in the locale given by the keyword `locale`."""

_PLAIN_BLANKS = str.maketrans(dict.fromkeys("\u00a0\u202f\u2009", " "))
"""Nobody types the narrow and the unbreakable blanks of CLDR; both sides get the plain one."""
_TEST_PHRASES = 100
"""Phrases of each kind that are kept from training, where the kind is large enough."""
_UNITS = (
    *("area-hectare", "area-square-kilometer", "area-square-meter", "digital-gigabyte"),
    *("digital-megabyte", "electric-ampere", "electric-volt", "energy-kilocalorie"),
    *("energy-kilowatt-hour", "frequency-megahertz", "length-centimeter", "length-foot"),
    *("length-inch", "length-kilometer", "length-light-year", "length-meter", "length-mile"),
    *("length-millimeter", "mass-gram", "mass-kilogram", "mass-ounce", "mass-pound", "mass-tonne"),
    *("power-kilowatt", "power-watt", "pressure-hectopascal", "speed-kilometer-per-hour"),
    *("speed-knot", "speed-meter-per-second", "temperature-celsius", "temperature-fahrenheit"),
    *("volume-cubic-meter", "volume-gallon", "volume-liter", "volume-milliliter"),
)
_Duration = Literal["year", "month", "week", "day", "hour", "minute", "second"]
_DURATIONS: tuple[_Duration, ...] = ("year", "month", "week", "day", "hour", "minute", "second")
_SECONDS = (31_536_000, 2_592_000, 604_800, 86_400, 3_600, 60, 1)
_SAID_SO_FAR = (50, 9, 3, 5, 18, 50, 50)
"""The most of each duration that Babel doesn't round to the next larger one."""


@dataclass(frozen=True)
class CldrPairs:
    """Phrases of two languages, by kind; no source of `test` is among those of `train`."""

    train: list[Phrase]
    test: list[Phrase]


@dataclass(frozen=True)
class _Names:
    """Codes of what has a name in both locales."""

    territories: list[str]
    languages: list[str]
    currencies: list[str]

    @classmethod
    def shared_by(cls, locales: tuple[Locale, Locale]) -> _Names:
        """Collects the territories, their official languages, and currencies with a symbol."""

        def named(codes: set[str], attribute: str) -> list[str]:
            tables = [getattr(locale, attribute) for locale in locales]
            return sorted(code for code in codes if all(code in table for table in tables))

        english = Locale("en")
        territories = {code for code in map(str, english.territories) if len(code) == 2}
        official = {code: get_official_languages(code, de_facto=True) for code in territories}
        languages = {code for group in official.values() for code in group if len(code) == 2}
        currencies = {
            code
            for code in map(str, english.currencies)
            if get_currency_symbol(code, english) != code and not code.startswith("X")
        }
        return cls(
            named({code for code in territories if official[code]}, "territories"),
            named(languages, "languages"),
            named(currencies, "currencies"),
        )


def _date(draw: Random, names: _Names) -> list[_Render]:
    day = datetime.date(1950, 1, 1) + datetime.timedelta(draw.randrange(36_525))
    return [partial(format_date, day, style) for style in ("full", "long", "medium", "short")]


def _month(draw: Random, names: _Names) -> list[_Render]:
    skeletons = draw.choice((("yMMMM", "yMMM"), ("yMMMM", "yMMM"), ("MMMMd", "MMMd"), ("yQQQQ",)))
    day = datetime.date(1950, 1, 1) + datetime.timedelta(draw.randrange(36_525))
    return [partial(format_skeleton, skeleton, day) for skeleton in skeletons]


def _time(draw: Random, names: _Names) -> list[_Render]:
    time = datetime.time(draw.randrange(24), draw.randrange(60), draw.randrange(60))
    return [partial(format_time, time, style) for style in ("medium", "short")]


def _join(texts: list[str], style: _ListStyle, locale: Locale) -> str:
    # A language without patterns of its own for a style says its list plainly.
    complete = "start" in locale.list_patterns.get(style, {})
    return format_list(texts, style if complete else "standard", locale=locale)


def _say_durations(
    amounts: dict[_Duration, int], length: Literal["long", "short"], *, locale: Locale
) -> str:
    parts = [
        format_unit(amount, f"duration-{unit}", length, locale=locale)
        for unit, amount in amounts.items()
    ]
    return _join(parts, "unit", locale)


def _duration(draw: Random, names: _Names) -> list[_Render]:
    if draw.random() < 0.2:
        i = draw.randrange(len(_DURATIONS))
        seconds = draw.choice((-1, 1)) * draw.randint(1, _SAID_SO_FAR[i]) * _SECONDS[i]
        delta = datetime.timedelta(seconds=seconds)
        return [partial(format_timedelta, delta, _DURATIONS[i], add_direction=True)]
    first = draw.randrange(len(_DURATIONS) - 1)
    units = _DURATIONS[first : first + draw.choice((2, 2, 3))]
    amounts = {unit: draw.randint(1, 59) for unit in units}
    return [partial(_say_durations, amounts, length) for length in ("long", "short")]


def _draw_number(draw: Random, digits: int) -> float:
    """Draws a positive number of 1 to so many digits, up to 2 of them after the point."""
    whole = draw.randint(1, 10 ** draw.randint(1, digits) - 1)
    return whole / 10.0 ** draw.choice((0, 0, 1, 2))


def _unit(draw: Random, names: _Names) -> list[_Render]:
    number, unit = _draw_number(draw, 4), draw.choice(_UNITS)
    return [partial(format_unit, number, unit, length) for length in ("long", "short")]


def _money(draw: Random, names: _Names) -> list[_Render]:
    amount, currency = _draw_number(draw, 6), draw.choice(names.currencies)
    return [
        partial(format_currency, amount, currency, format_type=form)
        for form in ("standard", "name")
    ]


def _number(draw: Random, names: _Names) -> list[_Render]:
    number = _draw_number(draw, 7)
    form = draw.choice(("decimal", "decimal", "percent", "compact"))
    if form == "decimal":
        return [partial(format_decimal, number)]
    if form == "percent":
        return [partial(format_percent, round(number % 1000 / 100, 4), decimal_quantization=False)]
    # Two digits, so that all languages round alike: "3.4 million" is "340万", not "345万".
    large = draw.randint(1, 99) * 10 ** draw.randint(3, 11)
    return [partial(format_compact_decimal, large, format_type="long", fraction_digits=1)]


def _name_weekday(day: int, *, locale: Locale) -> str:
    return str(locale.days["stand-alone"]["wide"][day])


def _name_month(month: int, *, locale: Locale) -> str:
    return str(locale.months["stand-alone"]["wide"][month])


def _name_territory(code: str, *, locale: Locale) -> str:
    return str(locale.territories[code])


def _name_language(code: str, *, locale: Locale) -> str:
    return str(locale.languages[code])


def _say_list(items: list[_Render], style: _ListStyle, *, locale: Locale) -> str:
    return _join([item(locale=locale) for item in items], style, locale)


def _list(draw: Random, names: _Names) -> list[_Render]:
    families: tuple[list[_Render], ...] = (
        [partial(_name_weekday, day) for day in range(7)],
        [partial(_name_month, month) for month in range(1, 13)],
        [partial(_name_territory, code) for code in names.territories],
        [partial(_name_language, code) for code in names.languages],
    )
    items = draw.sample(draw.choice(families), draw.choice((3, 3, 4)))
    return [partial(_say_list, items, style) for style in ("standard", "or")]


def _country(draw: Random, names: _Names) -> list[_Render]:
    pair: list[_Render] = [partial(_name_territory, c) for c in draw.sample(names.territories, 2)]
    return [partial(_say_list, pair, style) for style in ("standard", "or")]


def _say_language_of(language: str, territory: str, *, locale: Locale) -> str:
    return f"{locale.languages[language]} ({locale.territories[territory]})"


def _language(draw: Random, names: _Names) -> list[_Render]:
    language, territory = draw.choice(names.languages), draw.choice(names.territories)
    return [partial(_say_language_of, language, territory)]


_KINDS: dict[str, Callable[[Random, _Names], list[_Render]]] = {
    "date": _date,
    "month": _month,
    "time": _time,
    "duration": _duration,
    "unit": _unit,
    "money": _money,
    "number": _number,
    "list": _list,
    "country": _country,
    "language": _language,
}
KINDS = tuple(_KINDS)
"""What the phrases say. A country or a language stands in another company than in training."""


def _parse_locale(name: str) -> Locale:
    try:
        return Locale.parse(name, sep="-" if "-" in name else "_")
    except (UnknownLocaleError, ValueError):
        raise InputError(
            f"{name!r} is not a locale of the Unicode CLDR, accepted is a code such as de or pt_BR",
            nearest_hint(name.replace("-", "_"), locale_identifiers()),
        ) from None


def _draw_values(
    kind: str, locales: tuple[Locale, Locale], names: _Names, seed: int
) -> Iterator[list[tuple[str, str]]]:
    """Yields, value after value for ever, every (source, target) that says it."""
    draw = Random(f"{seed} {kind}")
    while True:
        renders = _KINDS[kind](draw, names)
        source, target = (
            [render(locale=locale).translate(_PLAIN_BLANKS) for render in renders]
            for locale in locales
        )
        yield list(zip(source, target, strict=True))


class _Answers:
    """The targets of every source that was drawn, also of those that are not used."""

    def __init__(self) -> None:
        self._targets: dict[str, set[str]] = {}

    def add(self, phrases: list[tuple[str, str]]) -> None:
        for source, target in phrases:
            self._targets.setdefault(source, set()).add(target)

    def list_phrases(self, kinds: dict[str, str]) -> list[Phrase]:
        """Returns the sources of a table of kinds with their targets, where they have one only."""
        return [
            (kind, source, min(self._targets[source]))
            for source, kind in kinds.items()
            if len(self._targets[source]) == 1
        ]


def make_pairs(source_locale: str, target_locale: str, count: int, seed: int) -> CldrPairs:
    """Makes phrases of ten kinds in equal shares, and others to test with.

    A phrase says a drawn value, such as a day, in one of several styles. What is tested was not
    in the training text, but its parts were. Sources with two answers, such as "May 5, 2025",
    which German writes in two styles where English has one, are left out.

    Args:
        source_locale: A CLDR locale, such as `en` or `pt_BR`.
        target_locale: Another one.
        count: Training phrases wanted; a kind that hasn't so many gives those it has.
        seed: Decides the phrases.

    Raises:
        InputError: for an unknown locale, naming the nearest one.
    """
    locales = _parse_locale(source_locale), _parse_locale(target_locale)
    names = _Names.shared_by(locales)
    share = count // len(KINDS)
    n_test = min(_TEST_PHRASES, share // 5)
    answers = _Answers()
    train: dict[str, str] = {}
    test: dict[str, str] = {}
    for kind in KINDS:
        values = _draw_values(kind, locales, names, seed)
        for i, phrases in enumerate(itertools.islice(values, n_test)):
            answers.add(phrases)
            source, _ = phrases[i % len(phrases)]
            if source not in train:  # of an earlier kind
                test.setdefault(source, kind)
        most = len(train) + share
        for phrases in itertools.islice(values, 4 * share):
            if len(train) >= most:
                break
            answers.add(phrases)
            for source, _ in phrases:
                if source not in test:
                    train.setdefault(source, kind)
    return CldrPairs(answers.list_phrases(train), answers.list_phrases(test))
