"""Small chat templates in the forms of published ones: the same special tokens, tools and calls, and little else."""

from collections.abc import Mapping
from typing import Final

_CHATML = """\
{%- if tools %}<|im_start|>system
TOOLS_TEXT
<tools>{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
</tools><|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}CALL{% endfor %}<|im_end|>
{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
_HERMES_CALL = """\
{% if not loop.first or message.content %}{{ '\\n' }}{% endif %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>"""

HERMES: Final = _CHATML.replace("TOOLS_TEXT", "Answer a call between <tool_call> and </tool_call>.").replace(
    "CALL", _HERMES_CALL
)
QWEN3_CODER: Final = _CHATML.replace("TOOLS_TEXT", "Call as <tool_call><function=name>...").replace(
    "CALL",
    "<tool_call>\n<function={{ call.function.name }}>\n{% for name, value in call.function.arguments.items() %}"
    "<parameter={{ name }}>\n{{ value }}\n</parameter>\n{% endfor %}</function>\n</tool_call>",
)
LLAMA3: Final = """\
{{ bos_token }}
{%- for message in messages %}
{%- if message.tool_calls %}
{%- if message.tool_calls | length != 1 %}{{ raise_exception("one call at a time") }}{% endif %}
{%- set call = message.tool_calls[0].function %}<|start_header_id|>assistant<|end_header_id|>

{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}<|eot_id|>
{%- elif message.role == 'tool' %}<|start_header_id|>ipython<|end_header_id|>

{{ message.content | tojson }}<|eot_id|>
{%- else %}<|start_header_id|>{{ message.role }}<|end_header_id|>

{% if tools and loop.first %}Respond with {"name": function name, "parameters": its arguments}.
{% for tool in tools %}{{ tool | tojson(indent=4) }}
{% endfor %}{% endif %}{{ message.content }}<|eot_id|>
{%- endif %}{% endfor %}
{%- if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %}"""
_MISTRAL = """\
{{ bos_token }}
{%- for message in messages %}
{%- if message.role == 'user' %}
{%- if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}[INST]{{ message.content }}[/INST]
{%- elif message.role == 'tool' %}
{%- if message.tool_call_id | length != 9 %}{{ raise_exception("ids have 9 characters") }}{% endif %}
{{- '[TOOL_RESULTS]{"content": ' ~ message.content ~ ', "call_id": "' ~ message.tool_call_id ~ '"}[/TOOL_RESULTS]' }}
{%- else %}{{ message.content }}
{%- if message.tool_calls %}CALLS{% endif %}{{ eos_token }}
{%- endif %}{% endfor %}"""
_CHECKED = "{% if call.id | length != 9 %}{{ raise_exception('ids have 9 characters') }}{% endif %}"
MISTRAL: Final = _MISTRAL.replace(
    "CALLS",
    "[TOOL_CALLS] [{% for call in message.tool_calls %}" + _CHECKED + "{{ (call.function | tojson)[:-1] }}"
    ', "id": "{{ call.id }}"}{% if not loop.last %}, {% endif %}{% endfor %}]',
)
MISTRAL_ARGS: Final = _MISTRAL.replace(
    "CALLS",
    "{% for call in message.tool_calls %}[TOOL_CALLS]{{ call.function.name }}[ARGS]"
    "{{ call.function.arguments | tojson }}{% endfor %}",
)
MISTRAL_IDS: Final = _MISTRAL.replace(
    "CALLS",
    "{% for call in message.tool_calls %}" + _CHECKED + "[TOOL_CALLS]{{ call.function.name }}[CALL_ID]{{ call.id }}"
    "[ARGS]{{ call.function.arguments | tojson }}{% endfor %}",
)
_PHI = """\
{%- for message in messages %}
{%- if message.role == 'system' or (tools and loop.first) %}<|system|>TOOLS{% if message.role == 'system' %}
{{- message.content }}{% endif %}<|end|>{% endif %}
{%- if message.role == 'tool' %}<|tool_response|>{{ message.content }}<|end|>
{%- elif message.role != 'system' %}<|{{ message.role }}|>{{ message.content }}
{%- if message.tool_calls %}CALLS{% endif %}<|end|>
{%- endif %}{% endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""
PHI4: Final = _PHI.replace(
    "TOOLS", "{% for tool in tools or [] %}<|tool|>{{ tool | tojson }}<|/tool|>{% endfor %}"
).replace(
    "CALLS",
    "{% for call in message.tool_calls %}<|tool_call|>{{ call.function | tojson }}<|/tool_call|>{% endfor %}",
)
FUNCTOOLS: Final = _PHI.replace(
    "TOOLS", "Call as functools[{...}].{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
).replace(
    "CALLS",
    'functools[{% for call in message.tool_calls %}{"name": "{{ call.function.name }}", '
    '"arguments": {{ call.function.arguments }}}{% if not loop.last %}, {% endif %}{% endfor %}]',
)
"""This template wants the arguments of a call as JSON text."""
GRANITE: Final = """\
{%- if tools %}<|start_of_role|>tools<|end_of_role|>{{ tools | tojson }}<|end_of_text|>
{% endif %}
{%- for message in messages %}<|start_of_role|>{{ message.role }}<|end_of_role|>{{ message.content }}
{%- if message.tool_calls %}<|tool_call|>[{% for call in message.tool_calls %}{{ call.function | tojson }}
{%- if not loop.last %}, {% endif %}{% endfor %}]{% endif %}<|end_of_text|>
{% endfor %}
{%- if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}"""

_DEEPSEEK = """\
{{- bos_token }}
{%- if tools %}Call tools between the marks.{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}
{%- for message in messages %}
{%- if message.role == 'user' %}<｜User｜>{{ message.content }}<｜Assistant｜>
{%- elif message.role == 'tool' %}<｜tool▁output▁begin｜>{{ message.content }}<｜tool▁output▁end｜>
{%- else %}{{ message.content }}
{%- if message.tool_calls %}<｜tool▁calls▁begin｜>{% for call in message.tool_calls %}CALL{% endfor %}
{{- '<｜tool▁calls▁end｜>' }}{% endif %}<｜end▁of▁sentence｜>
{%- endif %}{% endfor %}"""
DEEPSEEK_V3: Final = _DEEPSEEK.replace(
    "CALL",
    "{% if not loop.first %}{{ '\\n' }}{% endif %}<｜tool▁call▁begin｜>{{ call.type }}<｜tool▁sep｜>"
    "{{ call.function.name }}{{ '\\n```json\\n' }}{{ call.function.arguments | tojson }}{{ '\\n```' }}"
    "<｜tool▁call▁end｜>",
)
DEEPSEEK_V31: Final = _DEEPSEEK.replace(
    "CALL",
    "<｜tool▁call▁begin｜>{{ call.function.name }}<｜tool▁sep｜>{{ call.function.arguments }}<｜tool▁call▁end｜>",
)
"""This template wants the arguments of a call as JSON text."""

TEMPLATES: Final[Mapping[str, str]] = {
    "hermes": HERMES,
    "llama3": LLAMA3,
    "mistral": MISTRAL,
    "mistral_args": MISTRAL_ARGS,
    "mistral_ids": MISTRAL_IDS,
    "phi4": PHI4,
    "functools": FUNCTOOLS,
    "granite": GRANITE,
    "deepseek_v3": DEEPSEEK_V3,
    "deepseek_v31": DEEPSEEK_V31,
}
"""A template for every syntax but the generic one."""

ENDS: Final = ("<|im_end|>", "<|eot_id|>", "<|end|>", "<|end_of_text|>", "</s>", "<｜end▁of▁sentence｜>")
SPECIAL_TOKENS: Final = (
    *ENDS,
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "[THINK]",
    "[/THINK]",
    "<|python_tag|>",
    "<|tool_call|>",
    "<|/tool_call|>",
    *(f"<｜tool▁{name}｜>" for name in ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep")),
)
"""Special tokens of those models that an answer may contain."""

GRANITE_HIDING: Final = """\
{%- if tools %}<|start_of_role|>system<|end_of_role|>For a call, write <|tool_call|> and a list.<|end_of_text|>
<|start_of_role|>tools<|end_of_role|>{{ tools | tojson }}<|end_of_text|>
{% endif %}
{%- for message in messages %}<|start_of_role|>{{ message.role }}<|end_of_role|>{{ message.content }}<|end_of_text|>
{% endfor %}
{%- if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}"""
"""This template tells the model of tools, and does not show the calls of earlier messages."""

QWEN3: Final = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ message.content }}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}{% endif %}"""
"""The model may think, unless `enable_thinking` is false."""
DEEPSEEK_R1: Final = QWEN3.replace(
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}", "<think>\n"
)
"""The template opens the tag itself."""
MAGISTRAL: Final = _MISTRAL.replace("{{ bos_token }}", "{{ bos_token }}Think between [THINK] and [/THINK].")
GRANITE_THINKING: Final = (
    """\
{%- if thinking %}<|start_of_role|>system<|end_of_role|>First write 'Here is my thought process:' and your thoughts,
then 'Here is my response:' and the answer.<|end_of_text|>
{% endif %}"""
    + GRANITE
)
