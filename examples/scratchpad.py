# The model thinks aloud, then answers, and the thoughts are taken back. A stream has shown the thoughts by then (the
# text after the arrow replaces the thoughts); the final text has the answer only.
#
#   aici run --json scratchpad.py

import aici


async def main():
    await aici.FixedTokens("Question: Anna has 3 apples and buys 4 more. How many apples has she?\n")
    before = aici.Label()
    await aici.FixedTokens("Let us think step by step: ")
    thoughts = await aici.gen_text(regex=r"[^\n]+\n", max_tokens=40)
    aici.set_var("thoughts", thoughts)
    await aici.FixedTokens("\nSo the number is ")
    number = await aici.gen_text(regex=r"[1-9][0-9]?")
    await aici.FixedTokens("Answer: " + number + "\n", following=before)


aici.start(main())
