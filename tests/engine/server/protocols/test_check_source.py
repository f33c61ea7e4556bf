"""`POST /v1/check/source`: the problems of a text, each with its place."""

from tests.support.openai_api import Api

PATH = "/v1/check/source"


def test_problems_have_a_place_and_are_no_error_of_the_request() -> None:
    api = Api()
    found = api.answer(PATH, {"language": "regex", "text": "ab(\nc"})
    problem = {"severity": "error", "line": 1, "column": 3, "message": "missing ')' for this group"}
    assert found == {"problems": [problem]}
    assert api.answer(PATH, {"language": "javascript", "text": "await $`a`;"}) == {"problems": []}
    assert not api.engine.submitted


def test_refused_bodies() -> None:
    api = Api()
    for body in ({"language": "cobol", "text": ""}, {"language": "regex"}, {"language": "regex", "text": "", "x": 1}):
        assert api.post(PATH, body).status_code == 400
