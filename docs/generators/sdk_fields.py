"""What becomes of each field of the official SDKs' request types. A test compares the lists with the types and with the
server's models.

A field of a field is `outer.inner`; the fields of all variants of a message or a block stand together. A listed field
stands for the fields inside of it too, except for fields that another list names.
"""

from docs.generators.markdown import NOTE, table

HONOURED = {
    "chat": """
        frequency_penalty logit_bias logprobs max_completion_tokens max_tokens messages modalities model n
        parallel_tool_calls prediction presence_penalty reasoning_effort response_format seed stop stream
        stream_options temperature tool_choice tools top_logprobs top_p
    """,
    "completions": """
        best_of echo frequency_penalty logit_bias logprobs max_tokens model n presence_penalty prompt seed stop stream
        stream_options temperature top_p
    """,
    "embeddings": "dimensions encoding_format input model",
    "responses": """
        include input instructions max_output_tokens model parallel_tool_calls previous_response_id reasoning store
        stream stream_options temperature text tool_choice tools top_logprobs top_p truncation
    """,
    "messages": """
        max_tokens messages model output_config stop_sequences stream system thinking tool_choice tools
    """,
}
"""The field does what the SDK says."""
WITHOUT_EFFECT = {
    "chat": """
        messages.content.prompt_cache_breakpoint metadata prompt_cache_key prompt_cache_options
        prompt_cache_retention response_format.json_schema.description response_format.json_schema.name
        safety_identifier service_tier store user verbosity
    """,
    "completions": "user",
    "embeddings": "user",
    "responses": """
        max_tool_calls metadata prompt_cache_key prompt_cache_options prompt_cache_retention reasoning.context
        reasoning.generate_summary reasoning.mode reasoning.summary safety_identifier service_tier text.format.description text.format.name text.verbosity user
    """,
    "messages": """
        cache_control messages.content.cache_control messages.content.content.cache_control messages.content.data
        messages.content.signature metadata output_config.effort service_tier speed system.cache_control
        tools.cache_control tools.eager_input_streaming
    """,
}
"""The field is accepted and changes no answer."""
REFUSED_VALUES = {
    "chat": "function_call functions stream_options.include_obfuscation",
    "completions": "stream_options.include_obfuscation",
    "embeddings": "",
    "responses": """
        access_programs background background_options context_management conversation image moderation prompt
        stream_options.include_obfuscation
    """,
    "messages": """
        container diagnostics inference_geo messages.content.caller messages.content.citations
        messages.content.toolset_name messages.content.content.citations system.citations tools.allowed_callers
        tools.defer_loading tools.input_examples
    """,
}
"""The field is accepted with the values that have no effect; every other value is refused by the name of the field."""
REFUSED = {
    "chat": """
        audio messages.audio messages.content.file messages.content.image_url messages.content.input_audio
        messages.function_call messages.tool_calls.custom moderation tool_choice.custom tools.custom web_search_options
    """,
    "completions": "suffix",
    "embeddings": "",
    "responses": "",
    "messages": """
        messages.content.content.content messages.content.content.context messages.content.content.encrypted_content
        messages.content.content.encrypted_stdout messages.content.content.error_code
        messages.content.content.error_message messages.content.content.file_type
        messages.content.content.is_file_update messages.content.content.lines messages.content.content.new_lines
        messages.content.content.new_start messages.content.content.num_lines messages.content.content.old_lines
        messages.content.content.old_start messages.content.content.page_age messages.content.content.retrieved_at
        messages.content.content.return_code messages.content.content.source messages.content.content.start_line
        messages.content.content.state_changes messages.content.content.stderr messages.content.content.stdout
        messages.content.content.tabs messages.content.content.title messages.content.content.tool_name
        messages.content.content.tool_references messages.content.content.total_lines
        messages.content.content.transformations messages.content.content.url messages.content.context
        messages.content.file_id messages.content.source messages.content.title messages.content.transformations
        tools.allowed_domains tools.blocked_domains tools.citations tools.configs tools.max_characters
        tools.max_content_tokens tools.max_uses tools.response_inclusion tools.url_sources
        tools.use_cache tools.user_location
    """,
}
"""The field is refused by its name."""

TITLES = {
    "chat": "OpenAI, `chat.completions.create`",
    "completions": "OpenAI, `completions.create`",
    "embeddings": "OpenAI, `embeddings.create`",
    "responses": "OpenAI, `responses.create`",
    "messages": "Anthropic, `messages.create`",
}


def sdk_fields_page() -> str:
    """Return the page of the lists."""
    intro = """\
Every field of the request types of OpenAI's and Anthropic's clients for Python, and what the server does with the field.
A field of a field is `outer.inner`. A listed field stands for the fields inside of it, except for fields that another
row names. In `responses.create`, items and tools of the types that OpenAI's own servers run are refused by the name of
the type.
"""
    says = {
        "honoured": HONOURED,
        "accepted without effect": WITHOUT_EFFECT,
        "accepted with the values that have no effect, else refused": REFUSED_VALUES,
        "refused by name": REFUSED,
    }
    parts = [NOTE.format(source="docs/generators/sdk_fields.py"), f"# Parameters of the SDKs\n\n{intro}"]
    for protocol, title in TITLES.items():
        rows = (
            (meaning, ", ".join(f"`{name}`" for name in sorted(fields[protocol].split())))
            for meaning, fields in says.items()
            if fields[protocol]
        )
        parts.append(f"\n## {title}\n{table(('the server', 'fields'), rows)}")
    return "".join(parts)
