# Twenty questions: the model asks, this program answers from a table, and the model must not ask a question twice.
#
#   aici run twenty_questions.py

import aici

FACTS = {
    "an animal": True,
    "bigger than a house": False,
    "a bird": False,
    "a pet": True,
    "fast": True,
    "made of wood": False,
}
THINGS = ["a dog", "a table", "an eagle", "a whale", "a cat"]


async def main():
    await aici.FixedTokens("A game of twenty questions. I am thinking of a thing.\n")
    asked = []
    while len(asked) < 4:
        await aici.FixedTokens(f"Question {len(asked) + 1}: Is it ")
        what = await aici.gen_text(choices=[fact for fact in FACTS if fact not in asked])
        asked.append(what)
        await aici.FixedTokens("? Yes.\n" if FACTS[what] else "? No.\n")
    await aici.FixedTokens("My guess: ")
    guess = await aici.gen_text(choices=THINGS)
    aici.set_var("guess", guess)
    await aici.FixedTokens(". Right!\n" if guess == "a dog" else ". Wrong!\n")


aici.start(main())
