"""Models that think before answering: the tags around a thought, and where a prompt leaves the model.

closed     the template writes a whole thought: the model answers at once
open       the template opens the tag: the model thinks
possible   the template leaves the choice to the model: the first tokens tell
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from aici_base.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingTags:
    """The tags around a thought. `after_end`: the template's text between the end tag and the answer.

    `answer_end`: the tag that ends the answer after a thought, if any.
    `aliases`: names of vLLM's parsers for models with these tags.
    """

    name: str
    begin: str
    end: str
    after_end: str = "\n\n"
    answer_end: str | None = None
    aliases: tuple[str, ...] = ()


THINKING_TAGS: Final = (
    ThinkingTags(name="response", begin="<think>", end="</think>", after_end="\n<response>", answer_end="</response>"),
    ThinkingTags(name="think", begin="<think>", end="</think>", aliases=("qwen3", "deepseek_r1")),
    ThinkingTags(name="magistral", begin="[THINK]", end="[/THINK]", after_end="", aliases=("mistral",)),
    ThinkingTags(name="granite", begin="Here is my thought process:", end="Here is my response:"),
    ThinkingTags(name="seed", begin="<seed:think>", end="</seed:think>", after_end="", aliases=("seed_oss",)),
)
THINKING_NAMES: Final = tuple(name for tags in THINKING_TAGS for name in (tags.name, *tags.aliases))


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """The thought of a turn. `is_open`: the prompt ends with the begin tag. `budget`: the most tokens of the thought,
    after which the end tag is forced; 0 allows no thought."""

    tags: ThinkingTags
    is_open: bool
    budget: int | None = None


def tags_of_template(source: str) -> ThinkingTags | None:
    """Return the tags of a template; None for a template without tags.

    >>> tags_of_template("{{ '<think>' if thinking else '<think></think>' }}").name
    'think'
    """

    def has(tags: ThinkingTags) -> bool:
        return all(tag in source for tag in (tags.begin, tags.end, tags.answer_end or ""))

    return next(filter(has, THINKING_TAGS), None)


def named_tags(name: str) -> ThinkingTags:
    """Return the tags by name, or by the name of a parser of vLLM. Raises UsageError for an unknown name."""
    for tags in THINKING_TAGS:
        if name in (tags.name, *tags.aliases):
            return tags
    raise UsageError(f"the reasoning parser {name} is not known", hint=f"use none, auto, {', '.join(THINKING_NAMES)}")


def thinking_of_prompt(tags: ThinkingTags, prompt: str, budget: int | None) -> Thinking | None:
    """Return the thought that may follow a prompt; None if the prompt ends with a whole thought."""
    text = prompt.rstrip()
    if text.endswith(tags.end):
        return None
    return Thinking(tags=tags, is_open=text.endswith(tags.begin), budget=budget)


def thinking_options(is_wanted: bool) -> Mapping[str, Any]:
    """Return the variables that switch thinking on or off: of Qwen and SmolLM, and of Granite and DeepSeek."""
    return {"enable_thinking": is_wanted, "thinking": is_wanted}
