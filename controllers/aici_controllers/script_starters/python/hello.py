# Run it: aici run hello.py. aici.pyi, beside it, says what there is.
import aici


async def main() -> None:
    await aici.FixedTokens("Ultimate answer is to the life, universe and everything is ")
    answer = await aici.gen_text(regex=r"\d\d")
    print("it is", answer)


aici.start(main())
