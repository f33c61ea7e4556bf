"""A program that runs lm-eval over a task of its own, with the tokenizer that the server tells."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from features import feature
from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI

url = f"{sys.argv[1]}/v1"


def requests(kind: Any, *arguments: Any) -> list[Any]:
    return [Instance(kind, {}, each, number) for number, each in enumerate(arguments)]


def model(**fields: Any) -> LocalCompletionsAPI:
    common: Any = {"model": "default", "base_url": f"{url}/completions", "max_length": 1024, "num_concurrent": 1}
    return LocalCompletionsAPI(**(common | {"tokenizer_backend": "remote"} | fields))


PAIRS = [("The capital of France is", " Paris"), ("The capital of France is", " banana")]


@feature("logprobs", "loglikelihood with a remote tokenizer")
def _() -> bool:
    right, wrong = model().loglikelihood(requests("loglikelihood", *PAIRS))
    return right[0] > wrong[0]


@feature("logprobs", "loglikelihood with text")
def _() -> bool:
    right, wrong = model(tokenized_requests=False).loglikelihood(requests("loglikelihood", *PAIRS))
    return right[0] > wrong[0]


@feature("logprobs", "loglikelihood_rolling")
def _() -> bool:
    [score] = model().loglikelihood_rolling(requests("loglikelihood_rolling", ("Once upon a time there was a cat.",)))
    return score < 0


@feature("chat", "generate_until")
def _() -> bool:
    until: Any = {"until": ["\n"], "max_gen_toks": 20}
    return bool(model().generate_until(requests("generate_until", ("Once upon a time", until)))[0])


@feature("chat", "local-chat-completions")
def _() -> bool:
    chat = LocalChatCompletion(model="default", base_url=f"{url}/chat/completions", num_concurrent=1)
    messages = chat.apply_chat_template([{"role": "user", "content": "Say hello."}])
    until: Any = {"until": ["\n"], "max_gen_toks": 20}
    return bool(chat.generate_until(requests("generate_until", (messages, until)))[0])


@feature("logprobs", "a whole evaluation, of multiple choice")
def _() -> bool:
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    folder = Path(tempfile.mkdtemp(prefix="aici-lm-eval-"))
    lines = [{"q": "The capital of France is", "choices": ["Paris", "banana"], "answer": 0}]
    (folder / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    task = f"""\
task: capitals
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/data.jsonl}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{q}}}}"
doc_to_choice: choices
doc_to_target: answer
metric_list: [{{metric: acc}}]
"""
    (folder / "capitals.yaml").write_text(task)
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    result: Any = simple_evaluate(model(), tasks=["capitals"], task_manager=manager, bootstrap_iters=0)
    return result["results"]["capitals"]["acc,none"] == 1.0
