# A form filled in field by field from a letter: every field has a constraint, and a field may quote the letter.
#
#   aici run form.py

import aici

LETTER = "Dear Sir, my name is Clara Jonas and I ordered two red lamps on 14 March. One of them arrived broken."


async def field(name, **constraint):
    await aici.FixedTokens(name + ": ")
    value = (await aici.gen_text(**constraint)).strip()
    await aici.FixedTokens("\n")
    aici.set_var(name.lower(), value)


async def main():
    await aici.FixedTokens("Letter: " + LETTER + "\n\nForm\n")
    await field("Name", regex=r"[A-Z][a-z]+ [A-Z][a-z]+", max_tokens=12)
    await field("Quote", substring=LETTER, substring_end=".", max_tokens=16)
    await field("Date", regex=r"(0?[1-9]|[12][0-9]|3[01]) (January|February|March|April|May)")
    await field("Kind", choices=["complaint", "order", "question"])
    await field("Pieces", regex=r"[1-9]")


aici.start(main())
