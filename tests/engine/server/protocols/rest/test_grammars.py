"""The shipped grammars over HTTP: each of them is a `guided_grammar`."""

from tests.support.openai_api import Api


def test_a_listed_grammar_is_one_that_a_request_takes() -> None:
    api = Api()
    names = api.http.get("/v1/grammars").json()["grammars"]
    assert {"json", "sql", "python"} <= set(names)
    answer = api.http.get("/v1/grammars/json")
    assert answer.headers["content-type"].startswith("text/plain")
    checked = api.post("/v1/check", {"guided_grammar": answer.text, "grammar_syntax": "y"})
    assert checked.json() == {"warnings": []}


def test_an_unknown_grammar_has_the_nearest_name() -> None:
    answer = Api().http.get("/v1/grammars/jsom")
    assert answer.status_code == 404
    assert "did you mean json?" in answer.text
    assert Api().http.get("/v1/grammars/..%2f..%2fREADME").status_code == 404
