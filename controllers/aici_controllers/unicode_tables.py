"""Generate `controllers/sdk/src/regex/unicode_tables.inc`: general categories, scripts, emoji and case for
the regex parser.

`python -m aici_controllers.unicode_tables` writes the file; a test compares the committed file with `unicode_tables()`.
The data come from the package `regex`, a development dependency pinned so that the version of Unicode is fixed.
`unicode.cpp` describes the formats.
"""

import textwrap
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from itertools import groupby
from typing import Final

import regex

from aici_controllers.build import sdk_dir

NUM_CODE_POINTS: Final = 0x110000
_CATEGORIES: Final = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn Cs"
CATEGORIES: Final = _CATEGORIES.split()
_SURROGATES: Final = range(0xD800, 0xE000)
_SCRIPTS: Final = """
Adlam=Adlm Ahom=Ahom Anatolian_Hieroglyphs=Hluw Arabic=Arab Armenian=Armn Avestan=Avst Balinese=Bali Bamum=Bamu
Bassa_Vah=Bass Batak=Batk Bengali=Beng Beria_Erfe=Berf Bhaiksuki=Bhks Bopomofo=Bopo Brahmi=Brah Braille=Brai
Buginese=Bugi Buhid=Buhd Canadian_Aboriginal=Cans Carian=Cari Caucasian_Albanian=Aghb Chakma=Cakm Cham=Cham
Cherokee=Cher Chorasmian=Chrs Common=Zyyy Coptic=Copt Cuneiform=Xsux Cypriot=Cprt Cypro_Minoan=Cpmn Cyrillic=Cyrl
Deseret=Dsrt Devanagari=Deva Dives_Akuru=Diak Dogra=Dogr Duployan=Dupl Egyptian_Hieroglyphs=Egyp Elbasan=Elba
Elymaic=Elym Ethiopic=Ethi Garay=Gara Georgian=Geor Glagolitic=Glag Gothic=Goth Grantha=Gran Greek=Grek
Gujarati=Gujr Gunjala_Gondi=Gong Gurmukhi=Guru Gurung_Khema=Gukh Han=Hani Hangul=Hang Hanifi_Rohingya=Rohg
Hanunoo=Hano Hatran=Hatr Hebrew=Hebr Hiragana=Hira Imperial_Aramaic=Armi Inherited=Zinh Inscriptional_Pahlavi=Phli
Inscriptional_Parthian=Prti Javanese=Java Jurchen=Jurc Kaithi=Kthi Kannada=Knda Katakana=Kana
Katakana_Or_Hiragana=Hrkt Kawi=Kawi Kayah_Li=Kali Kharoshthi=Khar Khitan_Small_Script=Kits Khmer=Khmr Khojki=Khoj
Khudawadi=Sind Kirat_Rai=Krai Lao=Laoo Latin=Latn Lepcha=Lepc Limbu=Limb Linear_A=Lina Linear_B=Linb Lisu=Lisu
Lycian=Lyci Lydian=Lydi Mahajani=Mahj Makasar=Maka Malayalam=Mlym Mandaic=Mand Manichaean=Mani Marchen=Marc
Masaram_Gondi=Gonm Medefaidrin=Medf Meetei_Mayek=Mtei Mende_Kikakui=Mend Meroitic_Cursive=Merc
Meroitic_Hieroglyphs=Mero Miao=Plrd Modi=Modi Mongolian=Mong Mro=Mroo Multani=Mult Myanmar=Mymr Nabataean=Nbat
Nag_Mundari=Nagm Nandinagari=Nand New_Tai_Lue=Talu Newa=Newa Nko=Nkoo Nushu=Nshu Nyiakeng_Puachue_Hmong=Hmnp
Ogham=Ogam Ol_Chiki=Olck Ol_Onal=Onao Old_Hungarian=Hung Old_Italic=Ital Old_North_Arabian=Narb Old_Permic=Perm
Old_Persian=Xpeo Old_Sogdian=Sogo Old_South_Arabian=Sarb Old_Turkic=Orkh Old_Uyghur=Ougr Oriya=Orya Osage=Osge
Osmanya=Osma Pahawh_Hmong=Hmng Palmyrene=Palm Pau_Cin_Hau=Pauc Phags_Pa=Phag Phoenician=Phnx Proto_Cuneiform=Pcun
Psalter_Pahlavi=Phlp Rejang=Rjng Runic=Runr Samaritan=Samr Saurashtra=Saur Seal=Seal Sharada=Shrd Shavian=Shaw
Siddham=Sidd Sidetic=Sidt SignWriting=Sgnw Sinhala=Sinh Sogdian=Sogd Sora_Sompeng=Sora Soyombo=Soyo Sundanese=Sund
Sunuwar=Sunu Syloti_Nagri=Sylo Syriac=Syrc Tagalog=Tglg Tagbanwa=Tagb Tai_Le=Tale Tai_Tham=Lana Tai_Viet=Tavt
Tai_Yo=Tayo Takri=Takr Tamil=Taml Tangsa=Tnsa Tangut=Tang Telugu=Telu Thaana=Thaa Thai=Thai Tibetan=Tibt
Tifinagh=Tfng Tirhuta=Tirh Todhri=Todr Tolong_Siki=Tols Toto=Toto Tulu_Tigalari=Tutg Ugaritic=Ugar Vai=Vaii
Vithkuqi=Vith Wancho=Wcho Warang_Citi=Wara Yezidi=Yezi Yi=Yiii Zanabazar_Square=Zanb
"""
SCRIPTS: Final = _SCRIPTS.split()
_EMOJI: Final = """
Emoji=Emoji Emoji_Component=EComp Emoji_Modifier=EMod Emoji_Modifier_Base=EBase Emoji_Presentation=EPres
Extended_Pictographic=ExtPict Regional_Indicator=RI
"""
EMOJI: Final = _EMOJI.split()


@cache
def _text() -> str:
    return "".join(chr(c) for c in range(NUM_CODE_POINTS) if c not in _SURROGATES)


def code_points(pattern: str) -> set[int]:
    """Return the code points matched by `pattern` in the package `regex`."""
    return {ord(c) for c in regex.findall(pattern, _text())}


def case_orbits() -> list[list[int]]:
    """Return sorted lists of code points that match regardless of case, as in Python's `re`."""
    cased = "".join(map(chr, sorted(code_points(r"[\p{Changes_When_Casemapped}\p{Changes_When_Casefolded}]"))))
    orbit_of: dict[int, set[int]] = {}
    for c in cased:
        orbit = {ord(other) for other in regex.findall(f"(?i){c}", cased)} | {ord(c)}
        orbit = orbit.union(*(orbit_of.get(other, set()) for other in orbit))
        orbit_of.update(dict.fromkeys(orbit, orbit))
    return sorted({tuple(sorted(orbit)): sorted(orbit) for orbit in orbit_of.values() if len(orbit) > 1}.values())


def _runs(labels: Iterable[int]) -> list[tuple[int, int]]:
    return [(label, sum(1 for _ in group)) for label, group in groupby(labels)]


def _category_table() -> bytes:
    labels = [CATEGORIES.index("Cn")] * NUM_CODE_POINTS
    for number, name in enumerate(CATEGORIES):
        for c in code_points(rf"\p{{{name}}}"):
            labels[c] = number
    for c in _SURROGATES:
        labels[c] = CATEGORIES.index("Cs")
    table, runs, at = bytearray(), _runs(labels), 0
    while at < len(runs):
        kind, length = runs[at]
        end = at
        while end < len(runs) and runs[end] == ((kind + end - at) % 2, 1):
            end += 1
        if end - at >= 2 and kind < 2:
            kind, length, at = len(CATEGORIES) + kind, end - at, end
        else:
            at += 1
        table += bytes([kind << 3 | min(length - 1, 7)]) + (_varint(length - 8) if length >= 8 else b"")
    return bytes(table)


def _script_table() -> bytes:
    labels = [-1] * NUM_CODE_POINTS
    for number, script in enumerate(SCRIPTS):
        for c in code_points(rf"\p{{Script={script.partition('=')[0]}}}"):
            assert labels[c] < 0, f"two scripts at {c:04X}"
            labels[c] = number
    missing = [c for c in code_points(r"[^\p{Cn}\p{Co}]") if labels[c] < 0]
    assert not missing, f"SCRIPTS lacks the script of {missing[0]:04X}"
    for c, label in enumerate(labels):
        labels[c] = label if label >= 0 else labels[c - 1]
    return b"".join(bytes([label]) + _varint(length) for label, length in _runs(labels))


def _emoji_table() -> bytes:
    labels = [0] * NUM_CODE_POINTS
    for number, name in enumerate(EMOJI):
        for c in code_points(rf"\p{{{name.partition('=')[0]}}}"):
            labels[c] |= 1 << number
    return b"".join(bytes([label]) + _varint(length) for label, length in _runs(labels))


def _case_table() -> bytes:
    pairs = sorted((orbit[0], other) for orbit in case_orbits() for other in orbit[1:])
    table, at, previous = bytearray(), 0, 0
    while at < len(pairs):
        first, other = pairs[at]
        stride = 2 if pairs[at + 1 : at + 2] == [(first + 2, other + 2)] else 1
        count = 1
        while pairs[at + count : at + count + 1] == [(first + stride * count, other + stride * count)]:
            count += 1
        table += _varint(first - previous) + _varint((count - 1) * 2 + stride - 1) + _varint(other - first)
        previous, at = first, at + count
    return bytes(table)


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _wrapped(table: bytes) -> str:
    return textwrap.fill(", ".join(map(str, table)), 120).replace(", ", ",")


def _array(name: str, table: bytes) -> str:
    return f"constexpr uint8_t {name}[] = {{\n{_wrapped(table)}}};\n"


def unicode_tables() -> str:
    """Return the text of the file."""
    return (
        f"// Generated by `python -m aici_controllers.unicode_tables` from regex {version('regex')}: do not edit.\n"
        f'constexpr std::string_view CATEGORY_CODES = "{"".join(CATEGORIES)}";\n'
        f'constexpr std::string_view SCRIPT_NAMES =\n    "{" ".join(SCRIPTS)}";\n'
        f'constexpr std::string_view EMOJI_NAMES =\n    "{" ".join(EMOJI)}";\n'
        + _array("CATEGORY_TABLE", _category_table())
        + _array("SCRIPT_TABLE", _script_table())
        + _array("EMOJI_TABLE", _emoji_table())
        + _array("CASE_TABLE", _case_table())
    )


if __name__ == "__main__":
    (sdk_dir() / "src" / "regex" / "unicode_tables.inc").write_text(unicode_tables())
