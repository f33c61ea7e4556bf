# Tool use: wherever the model writes an expression in double angle brackets, this program computes it and writes the
# result, so that the arithmetic is right whatever the model thinks.
#
#   aici run calculator.py

import aici

QUESTIONS = ["12 boxes with 7 eggs each", "125 pages read of 300", "a bill of 80 shared by 5"]


async def main():
    await aici.FixedTokens("Every calculation is written as <<expression>> result.\n")
    await aici.FixedTokens("3 bags with 4 nuts each: <<3*4>> 12\n20 euros minus 6: <<20-6>> 14\n")
    for question in QUESTIONS:
        await aici.FixedTokens(f"{question}: <<")
        expression = await aici.gen_text(regex=r"[1-9][0-9]{0,2}[-+*/][1-9][0-9]{0,2}")
        value = eval(expression)  # of digits and one operator: the regex saw to that
        await aici.FixedTokens(f">> {value:g}\n")
        aici.append_var("results", f"{expression}={value:g};")


aici.start(main())
