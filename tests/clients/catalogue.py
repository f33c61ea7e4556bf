"""The clients, in the order of the table."""

from tests.clients.client import Client
from tests.clients.environment import NodeEnvironment as Node
from tests.clients.environment import PythonEnvironment as Python

MODEL_ALIASES = ("gpt-5.6-luna", "gpt-4o", "claude-sonnet-4-5")
"""`gpt-5.6-luna` is the default model of openai-agents. Some clients do not send names that they do not know."""
SERVE_ARGS = ("--max-context", "2048", *(arg for name in MODEL_ALIASES for arg in ("--alias", name)))

_IN_PROMPT = (
    "the client describes the schema in the prompt and asks for any JSON object, or for text: nothing demands the "
    "schema, and the default model is too small to follow"
)

_REPEATS = "the default model repeats its calls until `max_tokens`, and the client refuses answers that are cut short"
_NO_LITERAL = "outlines itself refuses `Literal` for OpenAI's protocol; `from_vllm` takes it"
_NOT_OPENAI = "guidance itself refuses `select` and `regex` for OpenAI's protocol; `VLLMModel` takes them"

CLIENTS = (
    Client("openai (Python)", ("openai_python.py",), Python(("openai==3.54.0",))),
    Client("openai (Node)", ("openai_node.mjs", "openai_responses.mjs"), Node(("openai@7.57.0", "zod@4.6.7"))),
    Client("anthropic (Python)", ("anthropic_python.py",), Python(("anthropic==2.12.0",))),
    Client("anthropic (Node)", ("anthropic_node.mjs",), Node(("@anthropic-ai/sdk@1.12.0", "zod@4.6.7"))),
    Client(
        "instructor",
        ("instructor_chat.py", "instructor_responses.py"),
        Python(("instructor==1.17.0",)),
        {
            "structured output: JSON": _IN_PROMPT,
            "structured output: MD_JSON": _IN_PROMPT,
            "parallel tools: PARALLEL_TOOLS": _REPEATS,
        },
    ),
    Client(
        "pydantic-ai",
        ("pydantic_ai_chat.py", "pydantic_ai_responses.py"),
        Python(("pydantic-ai-slim[openai,anthropic]==2.68.0",)),
        {"structured output: PromptedOutput": _IN_PROMPT},
    ),
    Client(
        "LangChain, LangGraph",
        ("langchain_chat.py", "langchain_responses.py"),
        Python(
            ("langchain==1.4.7", "langgraph==1.2.22", "langchain-openai==1.7.3", "langchain-anthropic==1.7.7"),
        ),
        {"structured output: json_mode": _IN_PROMPT},
    ),
    Client(
        "LlamaIndex",
        ("llama_index_chat.py",),
        Python(("llama-index-llms-openai-like==0.8.1", "llama-index-embeddings-openai-like==0.4.0")),
        {
            "structured output: without function calling": "with `is_function_calling_model=False`, "
            "`structured_predict` sends `tool_choice: required` and no tools"
        },
    ),
    Client("LiteLLM", ("litellm_chat.py", "litellm_responses.py"), Python(("litellm==1.106.2", "mcp==2.3.0"))),
    Client(
        "DSPy",
        ("dspy_chat.py",),
        Python(("dspy==3.4.1", "numpy==2.4.6")),
        {"structured output: JSONAdapter, a model that DSPy does not know": _IN_PROMPT},
    ),
    Client(
        "outlines",
        ("outlines_chat.py",),
        Python(("outlines[openai]==1.3.3",)),
        {"structured output: from_openai, Literal": _NO_LITERAL},
    ),
    Client(
        "guidance",
        ("guidance_chat.py",),
        Python(("guidance==0.3.1", "openai==2.46.0")),
        {
            "constraints: OpenAI, select": _NOT_OPENAI,
            "constraints: OpenAI, regex": _NOT_OPENAI,
            "chat: VLLMModel, gen with max_tokens": "a limit of tokens for a part of a grammar is refused by name",
        },
    ),
    Client("openai-agents", ("agents_chat.py", "agents_responses.py"), Python(("openai-agents==0.24.0",))),
    Client("smolagents", ("smolagents_chat.py",), Python(("smolagents[openai]==1.26.0",))),
    Client(
        "Vercel AI SDK",
        ("ai_sdk_chat.mjs", "ai_sdk_responses.mjs"),
        Node(
            (
                "ai@7.0.173",
                "@ai-sdk/openai@4.0.118",
                "@ai-sdk/openai-compatible@3.0.92",
                "@ai-sdk/anthropic@4.0.105",
                "zod@4.6.7",
            )
        ),
    ),
    Client("llm", ("llm_chat.py",), Python(("llm==0.36",))),
    Client("lm-eval", ("lm_eval_scores.py",), Python(("lm-eval[api]==0.4.13",))),
    Client("promptfoo", ("promptfoo_chat.mjs", "promptfoo_responses.mjs"), Node(("promptfoo@0.123.1",))),
    Client("LMQL", ("lmql_queries.py",), Python(("lmql==0.7.3", "transformers==5.19.0"))),
    Client("original AICI command line", ("aici_original.py",), Python(("requests==2.32.5",)), needs="AICI_ORIGINAL"),
)
