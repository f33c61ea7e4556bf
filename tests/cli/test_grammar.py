"""`aici grammar`, run as a user runs the command."""

import json
from pathlib import Path

from tests.support.cli import aici

LIST = '%%\nlist : NUMBER | list "," NUMBER ;\nNUMBER : "/[0-9]+/" ;\nSKIP : "/[ \\n]+/" ;\n'
DANGLING = '%%\ns : "if" s | "if" s "else" s | "x" ;\nSKIP : " " ;\n'
WRONG = '%%\ns: "x" t ;\n'


def test_check_summarizes_a_shipped_grammar() -> None:
    done = aici("grammar", "check", "json")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "json.y: 6 rules, 16 productions; 11 terminals and 1 under SKIP; 26 LR(1) states; 0 conflicts" in done.stdout


def test_check_warns_of_conflicts_and_says_which_parser_runs(tmp_path: Path) -> None:
    file = tmp_path / "dangling.y"
    file.write_text(DANGLING)
    done = aici("grammar", "check", str(file))
    assert done.returncode == 0
    assert done.stderr.startswith(f'{file}:2:5: warning: conflict before "else"')
    assert "\n  example: if if x . else\n" in done.stderr
    assert "0 conflicts settled by precedence; 1 by shifting" in done.stdout
    file.write_text("%glr-parser\n" + DANGLING)
    done = aici("grammar", "check", str(file))
    assert done.stderr == ""
    assert "general parser (1 conflicts followed)" in done.stdout


def test_check_points_at_errors_and_exits_1(tmp_path: Path) -> None:
    file = tmp_path / "wrong.y"
    file.write_text(WRONG)
    done = aici("grammar", "check", str(file))
    assert done.returncode == 1
    assert done.stderr == f"{file}:2:8: error: t is neither a rule nor declared with %token\n"


def test_check_reads_stdin_and_answers_in_json() -> None:
    done = aici("grammar", "check", "-", "--json", stdin=WRONG)
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert answer["ok"] is False
    assert [(problem["line"], problem["severity"]) for problem in answer["problems"]] == [(2, "error")]
    assert json.loads(aici("grammar", "check", "-", "--json", stdin=LIST).stdout)["ok"] is True


def test_accepts_says_where_the_input_fails_and_what_was_expected(tmp_path: Path) -> None:
    grammar, text = tmp_path / "list.y", tmp_path / "input"
    grammar.write_text(LIST)
    text.write_text("1, 2,\n  34; 5\n")
    done = aici("grammar", "accepts", str(grammar), str(text))
    assert done.returncode == 1
    assert done.stdout.splitlines()[:3] == [f"{text}:2:5: unexpected '; 5'", "    34; 5", "      ^"]
    assert '","' in done.stdout.splitlines()[3]
    answer = json.loads(aici("grammar", "accepts", str(grammar), "-", "--json", stdin="1, 2,").stdout)
    assert (answer["accepted"], answer["at"], answer["complete"], answer["expected"]) == (False, 5, False, ["NUMBER"])
    ended = aici("grammar", "accepts", str(grammar), "-", stdin="1, 2,")
    assert ended.stdout.startswith("stdin:1:6: unexpected end of input\n")
    done = aici("grammar", "accepts", str(grammar), "-", stdin="1, 2")
    assert (done.returncode, done.stdout) == (0, "stdin: accepted\n")


def test_wrong_use(tmp_path: Path) -> None:
    latin = tmp_path / "latin"
    latin.write_bytes(b"\xe9")
    wrong = tmp_path / "wrong.y"
    wrong.write_text(WRONG)
    for args, said in [
        (["check", "jsn"], "did you mean json"),
        (["check", str(tmp_path / "no.y")], "cannot be read"),
        (["check", str(tmp_path)], "cannot be read"),
        (["check", str(latin)], "not UTF-8"),
        (["accepts", "-", "-"], "both"),
        (["accepts", "json", str(tmp_path / "nothing")], "cannot be read"),
        (["accepts", str(wrong), str(latin)], "not UTF-8"),
        (["accepts", str(wrong), str(wrong)], "the grammar has errors: line 2, column 8"),
    ]:
        done = aici("grammar", *args)
        assert (done.returncode, done.stdout) == (2, ""), args
        assert said in done.stderr


def test_list_names_the_shipped_grammars() -> None:
    done = aici("grammar", "list")
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert names == sorted(names)
    assert {"c", "json", "sql"} <= set(names)
    listed = json.loads(aici("grammar", "list", "--json").stdout)
    assert [grammar["name"] for grammar in listed] == names
    assert all(Path(grammar["path"]).is_file() for grammar in listed)


def test_lark_and_gbnf_are_read_checked_and_converted(tmp_path: Path) -> None:
    lark, gbnf = tmp_path / "list.lark", tmp_path / "list"
    lark.write_text('start: WORD ("," WORD)*\nWORD: /[a-z]+/\n%ignore " "\n')
    gbnf.write_text('root ::= [a-z]+ ("," root)?\n')
    done = aici("grammar", "accepts", str(lark), "-", stdin="a , bc")
    assert (done.returncode, done.stdout) == (0, "stdin: accepted\n")
    assert aici("grammar", "accepts", str(gbnf), "-", stdin="a,bc").returncode == 0
    assert "no lexer" in aici("grammar", "check", str(gbnf)).stdout
    for file, to, says in [(lark, "gbnf", "root ::="), (gbnf, "lark", "start:"), (lark, "y", "%option ambiguous")]:
        converted = aici("grammar", "convert", str(file), "--to", to)
        assert converted.returncode == 0
        assert says in converted.stdout


def test_a_wrong_guess_of_the_notation_is_told(tmp_path: Path) -> None:
    file = tmp_path / "grammar"
    file.write_text('start: "a" ;\nx: "b"\n')
    done = aici("grammar", "check", str(file))
    assert done.returncode == 1
    assert "read as yacc's notation (.y): so says the text" in done.stderr
    done = aici("grammar", "check", str(file), "--grammar-syntax", "lark")
    assert f"{file}:1:12: error: " in done.stderr
    assert "so says" not in done.stderr
    done = aici("run", "--grammar", str(file), "x")
    assert done.returncode == 2
    assert "--grammar-syntax" in done.stderr
    done = aici("run", "--grammar-syntax", "lark", "x")
    assert done.returncode == 2
    assert "--grammar-syntax goes with --grammar" in done.stderr
