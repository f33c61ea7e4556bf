# A JSON record with a rule between two fields, beyond any schema. The program checks the record, takes the text of a
# wrong record back, and the model tries again with the reason in the prompt.
#
#   aici run json_with_retry.py

import json

import aici

SCHEMA = {
    "type": "object",
    "properties": {
        "from": {"type": "integer", "minimum": 1900, "maximum": 2025},
        "to": {"type": "integer", "minimum": 1900, "maximum": 2025},
    },
    "required": ["from", "to"],
    "additionalProperties": False,
}


async def main():
    await aici.FixedTokens("The years in which the band The Beatles was together, as JSON: ")
    start = aici.Label()
    why = ""
    for attempt in range(3):
        await aici.FixedTokens(why, following=start)
        record = json.loads(await aici.gen_text(json_schema=SCHEMA, max_tokens=40))
        if record["from"] < record["to"]:
            break
        print("attempt", attempt, "is wrong:", record)
        why = "(it begins before it ends) "
    else:
        # The model has failed three times: write a known answer.
        record = {"from": 1960, "to": 1970}
        await aici.FixedTokens(json.dumps(record), following=start)
    aici.set_var("record", json.dumps(record))


aici.start(main())
