_aici_models() {
    command ls "${AICI_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/aici}/models" 2>/dev/null
}
_aici_tags() {
    local folder="${AICI_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/aici}/modules"
    command grep -o '"tag":"[^"]*"' "${AICI_STORE_DIR:-$folder}/tags.json" 2>/dev/null | command cut -d '"' -f 4
}

_aici() {
    local at=aici words="" i cur="${COMP_WORDS[COMP_CWORD]}" option="${COMP_WORDS[COMP_CWORD-1]}"
    if [[ $cur == = ]]; then  # bash takes --option=value for three words
        cur=""
    elif [[ $option == = ]]; then
        option="${COMP_WORDS[COMP_CWORD-2]}"
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$at ${COMP_WORDS[i]}" in
            "aici run") at="aici run" ;;
            "aici batch") at="aici batch" ;;
            "aici chat") at="aici chat" ;;
            "aici serve") at="aici serve" ;;
            "aici stage") at="aici stage" ;;
            "aici engine") at="aici engine" ;;
            "aici lmtp") at="aici lmtp" ;;
            "aici rt") at="aici rt" ;;
            "aici doctor") at="aici doctor" ;;
            "aici models") at="aici models" ;;
            "aici models pull") at="aici models pull" ;;
            "aici models list") at="aici models list" ;;
            "aici models path") at="aici models path" ;;
            "aici models rm") at="aici models rm" ;;
            "aici config") at="aici config" ;;
            "aici config show") at="aici config show" ;;
            "aici ctrl") at="aici ctrl" ;;
            "aici ctrl upload") at="aici ctrl upload" ;;
            "aici ctrl pull") at="aici ctrl pull" ;;
            "aici ctrl list") at="aici ctrl list" ;;
            "aici ctrl tag") at="aici ctrl tag" ;;
            "aici ctrl tags") at="aici ctrl tags" ;;
            "aici ctrl rm") at="aici ctrl rm" ;;
            "aici ctrl new") at="aici ctrl new" ;;
            "aici ctrl init-js") at="aici ctrl init-js" ;;
            "aici ctrl init-py") at="aici ctrl init-py" ;;
            "aici ctrl build") at="aici ctrl build" ;;
            "aici ctrl test") at="aici ctrl test" ;;
            "aici ctrl schema") at="aici ctrl schema" ;;
            "aici bench") at="aici bench" ;;
            "aici bench abuse") at="aici bench abuse" ;;
            "aici bench cluster") at="aici bench cluster" ;;
            "aici bench constraint") at="aici bench constraint" ;;
            "aici bench ctrl") at="aici bench ctrl" ;;
            "aici bench engine") at="aici bench engine" ;;
            "aici bench masks") at="aici bench masks" ;;
            "aici bench quality") at="aici bench quality" ;;
            "aici bench replicas") at="aici bench replicas" ;;
            "aici bench rt") at="aici bench rt" ;;
            "aici bench serve") at="aici bench serve" ;;
            "aici bench speculate") at="aici bench speculate" ;;
            "aici grammar") at="aici grammar" ;;
            "aici grammar check") at="aici grammar check" ;;
            "aici grammar accepts") at="aici grammar accepts" ;;
            "aici grammar convert") at="aici grammar convert" ;;
            "aici grammar list") at="aici grammar list" ;;
            "aici schema") at="aici schema" ;;
            "aici schema check") at="aici schema check" ;;
            "aici schema accepts") at="aici schema accepts" ;;
            "aici cluster") at="aici cluster" ;;
            "aici cluster plan") at="aici cluster plan" ;;
            "aici cluster status") at="aici cluster status" ;;
            "aici cluster token") at="aici cluster token" ;;
            "aici node") at="aici node" ;;
            "aici node join") at="aici node join" ;;
            "aici node status") at="aici node status" ;;
            "aici node drain") at="aici node drain" ;;
            "aici node leave") at="aici node leave" ;;
        esac
    done
    COMPREPLY=()
    case "$at $option" in
            ('aici batch --alias' | 'aici batch --concurrency' | 'aici batch --server' | 'aici batch --threads' | 'aici bench abuse --limit' | 'aici bench abuse --only' | 'aici bench abuse --patience' | 'aici bench abuse --seconds' | 'aici bench abuse --server' | 'aici bench abuse --server-python' | 'aici bench abuse --threads' | 'aici bench cluster --batch' | 'aici bench cluster --nodes' | 'aici bench cluster --num-tokens' | 'aici bench cluster --prompt-tokens' | 'aici bench cluster --rounds' | 'aici bench cluster --threads' | 'aici bench constraint --batch' | 'aici bench constraint --kind' | 'aici bench constraint --num-tokens' | 'aici bench constraint --rounds' | 'aici bench constraint --threads' | 'aici bench ctrl --rounds' | 'aici bench ctrl --steps' | 'aici bench engine --batch' | 'aici bench engine --kernels' | 'aici bench engine --limit' | 'aici bench engine --num-tokens' | 'aici bench engine --peer' | 'aici bench engine --prompt-tokens' | 'aici bench engine --random' | 'aici bench engine --rounds' | 'aici bench engine --threads' | 'aici bench masks --case' | 'aici bench masks --limit' | 'aici bench masks --peer' | 'aici bench masks --rounds' | 'aici bench quality --num-tokens' | 'aici bench quality --threads' | 'aici bench replicas --clients' | 'aici bench replicas --num-tokens' | 'aici bench replicas --replicas' | 'aici bench replicas --rounds' | 'aici bench replicas --seconds' | 'aici bench rt --rounds' | 'aici bench rt --sequences' | 'aici bench serve --concurrency' | 'aici bench serve --engine-args' | 'aici bench serve --model' | 'aici bench serve --num-tokens' | 'aici bench serve --rate' | 'aici bench serve --replicas' | 'aici bench serve --rounds' | 'aici bench serve --server' | 'aici bench speculate --batch' | 'aici bench speculate --draft-model' | 'aici bench speculate --kind' | 'aici bench speculate --num-tokens' | 'aici bench speculate --rounds' | 'aici bench speculate --threads' | 'aici chat --choice' | 'aici chat --draft-model' | 'aici chat --logprobs' | 'aici chat --max-forks' | 'aici chat --max-tokens' | 'aici chat --regex' | 'aici chat --seed' | 'aici chat --server' | 'aici chat --stop' | 'aici chat --system' | 'aici chat --temperature' | 'aici chat --threads' | 'aici chat --top-k' | 'aici chat --top-p' | 'aici cluster plan --context' | 'aici cluster plan --driver' | 'aici cluster plan --node' | 'aici cluster plan --sequences' | 'aici cluster status --server' | 'aici ctrl list --server' | 'aici ctrl pull --server' | 'aici ctrl rm --server' | 'aici ctrl tag --server' | 'aici ctrl tags --server' | 'aici ctrl upload --server' | 'aici engine --listen' | 'aici engine --memory' | 'aici engine --name' | 'aici engine --threads' | 'aici lmtp --model' | 'aici node drain --name' | 'aici node join --label' | 'aici node join --listen' | 'aici node join --memory' | 'aici node join --name' | 'aici node join --threads' | 'aici node leave --name' | 'aici node status --name' | 'aici run --choice' | 'aici run --draft-model' | 'aici run --explain-top' | 'aici run --logprobs' | 'aici run --max-forks' | 'aici run --max-tokens' | 'aici run --num-samples' | 'aici run --prompt' | 'aici run --regex' | 'aici run --seed' | 'aici run --server' | 'aici run --stop' | 'aici run --temperature' | 'aici run --threads' | 'aici run --top-k' | 'aici run --top-p' | 'aici run -p' | 'aici serve --alias' | 'aici serve --allow-host' | 'aici serve --batches-days' | 'aici serve --cluster-address' | 'aici serve --cors-origin' | 'aici serve --cuts' | 'aici serve --depth' | 'aici serve --draft-model' | 'aici serve --drain-timeout' | 'aici serve --engine-args' | 'aici serve --engines' | 'aici serve --host' | 'aici serve --load-timeout' | 'aici serve --lora' | 'aici serve --max-batch-tokens' | 'aici serve --max-body-mib' | 'aici serve --max-connections' | 'aici serve --max-context' | 'aici serve --max-forks' | 'aici serve --max-num-seqs' | 'aici serve --max-queue' | 'aici serve --memory' | 'aici serve --memory-fraction' | 'aici serve --min-nodes' | 'aici serve --models-memory' | 'aici serve --name' | 'aici serve --nodes' | 'aici serve --port' | 'aici serve --prefill-slowdown' | 'aici serve --reasoning-parser' | 'aici serve --replan-after' | 'aici serve --replay-timeout' | 'aici serve --replicas' | 'aici serve --request-timeout' | 'aici serve --responses-days' | 'aici serve --scale-down-after' | 'aici serve --stages' | 'aici serve --threads' | 'aici serve --tool-syntax' | 'aici serve --trusted-proxy' | 'aici serve --unload-after' | 'aici stage --listen' | 'aici stage --memory' | 'aici stage --name' | 'aici stage --threads' | 'aici stage --tp') return ;;
            ('aici batch --device' | 'aici chat --device' | 'aici run --device' | 'aici serve --device' | 'aici stage --device') COMPREPLY=($(compgen -W "auto cpu cuda" -- "$cur")); return ;;
            ('aici batch --dtype' | 'aici bench cluster --dtype' | 'aici bench constraint --dtype' | 'aici bench engine --dtype' | 'aici bench quality --dtype' | 'aici bench speculate --draft-dtype' | 'aici bench speculate --dtype' | 'aici chat --draft-dtype' | 'aici chat --dtype' | 'aici cluster plan --dtype' | 'aici run --draft-dtype' | 'aici run --dtype' | 'aici serve --draft-dtype' | 'aici serve --dtype') COMPREPLY=($(compgen -W "auto float32 bfloat16 int8 int4" -- "$cur")); return ;;
            ('aici batch --model' | 'aici bench abuse --model' | 'aici bench cluster --model' | 'aici bench constraint --model' | 'aici bench ctrl --model' | 'aici bench engine --model' | 'aici bench masks --tokenizer' | 'aici bench quality --model' | 'aici bench replicas --model' | 'aici bench rt --tokenizer' | 'aici bench speculate --model' | 'aici chat --model' | 'aici ctrl test --tokenizer' | 'aici engine --model' | 'aici node join --model' | 'aici run --model' | 'aici serve --model' | 'aici stage --model') COMPREPLY=($(compgen -W "$(_aici_models)" -- "$cur")); COMPREPLY+=($(compgen -f -- "$cur")); return ;;
            ('aici batch --output' | 'aici batch -o' | 'aici bench abuse --api-key-file' | 'aici bench cluster --plot' | 'aici bench constraint --plot' | 'aici bench engine --plot' | 'aici bench masks --plot' | 'aici bench rt --plot' | 'aici bench serve --engine-python' | 'aici bench serve --plot' | 'aici chat --adapter' | 'aici chat --choices' | 'aici chat --controller-arg' | 'aici chat --json-schema' | 'aici chat --structural-tag' | 'aici chat --substring' | 'aici cluster token --token-file' | 'aici ctrl build --out' | 'aici ctrl build -o' | 'aici ctrl new --dir' | 'aici ctrl pull --out' | 'aici ctrl pull -o' | 'aici engine --key-file' | 'aici engine --token-file' | 'aici node join --token-file' | 'aici run --adapter' | 'aici run --choices' | 'aici run --controller-arg' | 'aici run --json-schema' | 'aici run --structural-tag' | 'aici run --substring' | 'aici serve --api-key-file' | 'aici serve --batches-file' | 'aici serve --controllers' | 'aici serve --engine-python' | 'aici serve --limits-file' | 'aici serve --responses-file' | 'aici serve --tls-cert' | 'aici serve --tls-client-ca' | 'aici serve --tls-key' | 'aici serve --token-file' | 'aici stage --key-file' | 'aici stage --token-file') COMPREPLY+=($(compgen -f -- "$cur")); return ;;
            ('aici bench constraint --device' | 'aici bench engine --device') COMPREPLY=($(compgen -W "cpu cuda" -- "$cur")); return ;;
            ('aici bench quality --kv-cache-dtype' | 'aici chat --kv-cache-dtype' | 'aici run --kv-cache-dtype' | 'aici serve --kv-cache-dtype') COMPREPLY=($(compgen -W "auto int8" -- "$cur")); return ;;
            ('aici bench serve --engine' | 'aici serve --engine') COMPREPLY=($(compgen -W "native vllm" -- "$cur")); return ;;
            ('aici chat --controller' | 'aici run --controller') COMPREPLY=($(compgen -W "choices declctrl grammar jsctrl json_schema pyctrl regex substring $(_aici_tags)" -- "$cur")); COMPREPLY+=($(compgen -f -- "$cur")); return ;;
            ('aici chat --grammar' | 'aici run --grammar') COMPREPLY=($(compgen -W "arithmetic c c89 csv graphql html javascript json latex_math lua markdown_table mermaid python regex sql toml typescript yaml" -- "$cur")); COMPREPLY+=($(compgen -f -- "$cur")); return ;;
            ('aici chat --grammar-syntax' | 'aici grammar accepts --grammar-syntax' | 'aici grammar check --grammar-syntax' | 'aici grammar convert --grammar-syntax' | 'aici grammar convert --to' | 'aici run --grammar-syntax') COMPREPLY=($(compgen -W "y lark gbnf" -- "$cur")); return ;;
            ('aici chat --objects' | 'aici run --objects' | 'aici schema accepts --objects' | 'aici schema check --objects') COMPREPLY=($(compgen -W "closed open" -- "$cur")); return ;;
            ('aici chat --property-order' | 'aici run --property-order' | 'aici schema accepts --property-order' | 'aici schema check --property-order') COMPREPLY=($(compgen -W "declared any" -- "$cur")); return ;;
            ('aici chat --speculate' | 'aici run --speculate' | 'aici serve --speculate') COMPREPLY=($(compgen -W "auto ngram off" -- "$cur")); return ;;
            ('aici chat --whitespace' | 'aici run --whitespace' | 'aici schema accepts --whitespace' | 'aici schema check --whitespace') COMPREPLY=($(compgen -W "compact none spaced flexible" -- "$cur")); return ;;
            ('aici ctrl new --lang') COMPREPLY=($(compgen -W "cpp c zig rust assemblyscript" -- "$cur")); return ;;
            ('aici ctrl pull --tag' | 'aici ctrl upload --tag') COMPREPLY=($(compgen -W "$(_aici_tags)" -- "$cur")); return ;;
            ('aici engine --log-level' | 'aici serve --log-level' | 'aici stage --log-level') COMPREPLY=($(compgen -W "DEBUG INFO WARNING ERROR" -- "$cur")); return ;;
            ('aici serve --load') COMPREPLY=($(compgen -W "start on-demand" -- "$cur")); return ;;
            ('aici serve --log-format') COMPREPLY=($(compgen -W "json text" -- "$cur")); return ;;
    esac
    if [[ $cur != -* ]]; then
        case "$at" in
            ('aici batch' | 'aici ctrl build' | 'aici ctrl init-js' | 'aici ctrl init-py' | 'aici ctrl new' | 'aici ctrl test' | 'aici ctrl upload' | 'aici models rm' | 'aici run' | 'aici schema accepts' | 'aici schema check') COMPREPLY+=($(compgen -f -- "$cur")); return ;;
            ('aici cluster plan' | 'aici models path' | 'aici models pull') COMPREPLY=($(compgen -W "$(_aici_models)" -- "$cur")); COMPREPLY+=($(compgen -f -- "$cur")); return ;;
            ('aici ctrl pull' | 'aici ctrl rm') COMPREPLY=($(compgen -W "$(_aici_tags)" -- "$cur")); return ;;
            ('aici ctrl tag') COMPREPLY=($(compgen -W "choices declctrl grammar jsctrl json_schema pyctrl regex substring $(_aici_tags)" -- "$cur")); return ;;
            ('aici grammar accepts' | 'aici grammar check' | 'aici grammar convert') COMPREPLY=($(compgen -W "arithmetic c c89 csv graphql html javascript json latex_math lua markdown_table mermaid python regex sql toml typescript yaml" -- "$cur")); COMPREPLY+=($(compgen -f -- "$cur")); return ;;
        esac
    fi
    case "$at" in
        "aici") words="
            run
            batch
            chat
            serve
            stage
            engine
            lmtp
            rt
            doctor
            models
            config
            ctrl
            bench
            grammar
            schema
            cluster
            node
            --version
            --debug
            --help" ;;
        "aici run") words="
            --prompt
            --regex
            --grammar
            --grammar-syntax
            --json-schema
            --structural-tag
            --choice
            --choices
            --substring
            --controller
            --controller-arg
            --whitespace
            --lenient
            --strict-schema
            --objects
            --property-order
            --temperature
            --top-k
            --top-p
            --seed
            --max-tokens
            --stop
            --logprobs
            --num-samples
            --model
            --server
            --dtype
            --kv-cache-dtype
            --device
            --threads
            --max-forks
            --adapter
            --speculate
            --draft-model
            --draft-dtype
            --chat
            --json
            --explain
            --explain-top
            --log
            --help" ;;
        "aici batch") words="
            --output
            --model
            --alias
            --server
            --concurrency
            --dtype
            --device
            --threads
            --retry-errors
            --help" ;;
        "aici chat") words="
            --model
            --server
            --dtype
            --kv-cache-dtype
            --device
            --threads
            --max-forks
            --adapter
            --speculate
            --draft-model
            --draft-dtype
            --system
            --regex
            --grammar
            --grammar-syntax
            --json-schema
            --structural-tag
            --choice
            --choices
            --substring
            --controller
            --controller-arg
            --whitespace
            --lenient
            --strict-schema
            --objects
            --property-order
            --temperature
            --top-k
            --top-p
            --seed
            --max-tokens
            --stop
            --logprobs
            --no-history
            --history
            --help" ;;
        "aici serve") words="
            --model
            --host
            --port
            --share-port
            --name
            --alias
            --lora
            --load
            --unload-after
            --models-memory
            --load-timeout
            --api-key-file
            --limits-file
            --controllers
            --max-queue
            --max-num-seqs
            --max-forks
            --spare-engine
            --replicas
            --engines
            --scale-down-after
            --no-pin
            --pin
            --max-batch-tokens
            --prefill-slowdown
            --max-context
            --max-connections
            --max-body-mib
            --request-timeout
            --drain-timeout
            --tool-syntax
            --reasoning-parser
            --responses-file
            --responses-days
            --batches-file
            --batches-days
            --memory-fraction
            --no-prefix-cache
            --prefix-cache
            --speculate
            --draft-model
            --draft-dtype
            --dtype
            --kv-cache-dtype
            --device
            --threads
            --engine
            --engine-python
            --engine-args
            --stages
            --cuts
            --depth
            --replay-timeout
            --token-file
            --cluster
            --cluster-address
            --announce
            --nodes
            --memory
            --min-nodes
            --replan-after
            --cors-origin
            --allow-host
            --tls-cert
            --tls-key
            --tls-client-ca
            --trusted-proxy
            --no-console
            --console
            --log-level
            --log-format
            --help" ;;
        "aici stage") words="
            --listen
            --model
            --token-file
            --key-file
            --memory
            --threads
            --device
            --tp
            --name
            --insecure
            --log-level
            --help" ;;
        "aici engine") words="
            --listen
            --model
            --token-file
            --key-file
            --memory
            --threads
            --name
            --insecure
            --log-level
            --help" ;;
        "aici lmtp") words="
            --model
            --json
            --help" ;;
        "aici rt") words="
            --help" ;;
        "aici doctor") words="
            --json
            --help" ;;
        "aici models") words="
            pull
            list
            path
            rm
            --help" ;;
        "aici models pull") words="
            --json
            --help" ;;
        "aici models list") words="
            --available
            --json
            --help" ;;
        "aici models path") words="
            --json
            --help" ;;
        "aici models rm") words="
            --yes
            --json
            --help" ;;
        "aici config") words="
            show
            --help" ;;
        "aici config show") words="
            --all
            --json
            --help" ;;
        "aici ctrl") words="
            upload
            pull
            list
            tag
            tags
            rm
            new
            init-js
            init-py
            build
            test
            schema
            --help" ;;
        "aici ctrl upload") words="
            --tag
            --share
            --server
            --json
            --help" ;;
        "aici ctrl pull") words="
            --out
            --tag
            --server
            --json
            --help" ;;
        "aici ctrl list") words="
            --server
            --json
            --help" ;;
        "aici ctrl tag") words="
            --share
            --server
            --json
            --help" ;;
        "aici ctrl tags") words="
            --server
            --json
            --help" ;;
        "aici ctrl rm") words="
            --force
            --server
            --json
            --help" ;;
        "aici ctrl new") words="
            --lang
            --dir
            --json
            --help" ;;
        "aici ctrl init-js") words="
            --force
            --json
            --help" ;;
        "aici ctrl init-py") words="
            --force
            --json
            --help" ;;
        "aici ctrl build") words="
            --out
            --json
            --help" ;;
        "aici ctrl test") words="
            --tokenizer
            --json
            --help" ;;
        "aici ctrl schema") words="
            --help" ;;
        "aici bench") words="
            abuse
            cluster
            constraint
            ctrl
            engine
            masks
            quality
            replicas
            rt
            serve
            speculate
            --help" ;;
        "aici bench abuse") words="
            --only
            --seconds
            --patience
            --limit
            --model
            --threads
            --server
            --api-key-file
            --server-python
            --json
            --help" ;;
        "aici bench cluster") words="
            --nodes
            --batch
            --model
            --dtype
            --threads
            --pin
            --prompt-tokens
            --num-tokens
            --rounds
            --no-links
            --links
            --no-recovery
            --recovery
            --quick
            --plot
            --json
            --help" ;;
        "aici bench constraint") words="
            --batch
            --kind
            --threads
            --num-tokens
            --rounds
            --quick
            --device
            --dtype
            --model
            --plot
            --json
            --help" ;;
        "aici bench ctrl") words="
            --rounds
            --steps
            --quick
            --model
            --json
            --help" ;;
        "aici bench engine") words="
            --model
            --random
            --dtype
            --kernels
            --peer
            --batch
            --device
            --threads
            --prompt-tokens
            --num-tokens
            --rounds
            --limit
            --quick
            --profile
            --prefix
            --plot
            --json
            --help" ;;
        "aici bench masks") words="
            --case
            --tokenizer
            --peer
            --rounds
            --limit
            --quick
            --plot
            --json
            --help" ;;
        "aici bench quality") words="
            --model
            --dtype
            --kv-cache-dtype
            --num-tokens
            --threads
            --json
            --help" ;;
        "aici bench replicas") words="
            --replicas
            --model
            --clients
            --num-tokens
            --rounds
            --seconds
            --no-faults
            --faults
            --json
            --help" ;;
        "aici bench rt") words="
            --sequences
            --tokenizer
            --rounds
            --quick
            --plot
            --json
            --help" ;;
        "aici bench serve") words="
            --server
            --model
            --replicas
            --engine
            --engine-python
            --engine-args
            --concurrency
            --rate
            --num-tokens
            --rounds
            --quick
            --plot
            --json
            --help" ;;
        "aici bench speculate") words="
            --batch
            --kind
            --num-tokens
            --rounds
            --threads
            --quick
            --model
            --dtype
            --draft-model
            --draft-dtype
            --json
            --help" ;;
        "aici grammar") words="
            check
            accepts
            convert
            list
            --help" ;;
        "aici grammar check") words="
            --grammar-syntax
            --json
            --help" ;;
        "aici grammar accepts") words="
            --grammar-syntax
            --json
            --help" ;;
        "aici grammar convert") words="
            --to
            --grammar-syntax
            --help" ;;
        "aici grammar list") words="
            --json
            --help" ;;
        "aici schema") words="
            check
            accepts
            --help" ;;
        "aici schema check") words="
            --whitespace
            --lenient
            --strict-schema
            --objects
            --property-order
            --json
            --help" ;;
        "aici schema accepts") words="
            --whitespace
            --lenient
            --strict-schema
            --objects
            --property-order
            --json
            --help" ;;
        "aici cluster") words="
            plan
            status
            token
            --help" ;;
        "aici cluster plan") words="
            --node
            --driver
            --dtype
            --context
            --sequences
            --json
            --help" ;;
        "aici cluster status") words="
            --server
            --watch
            --json
            --help" ;;
        "aici cluster token") words="
            --token-file
            --json
            --help" ;;
        "aici node") words="
            join
            status
            drain
            leave
            --help" ;;
        "aici node join") words="
            --token-file
            --model
            --memory
            --threads
            --label
            --listen
            --name
            --discover
            --help" ;;
        "aici node status") words="
            --name
            --json
            --help" ;;
        "aici node drain") words="
            --name
            --back
            --help" ;;
        "aici node leave") words="
            --name
            --now
            --help" ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o filenames -o bashdefault -o default -F _aici aici
