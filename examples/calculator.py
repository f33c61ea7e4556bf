# Tool use: when the model writes an expression in double angle brackets, this program computes and writes the result.
# The arithmetic is right for any model.
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
        value = eval(expression)  # safe: the regex allows only digits and an operator
        await aici.FixedTokens(f">> {value:g}\n")
        aici.append_var("results", f"{expression}={value:g};")


aici.start(main())
