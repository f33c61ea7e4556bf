_aici() {
    local at=aici words="" i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$at ${COMP_WORDS[i]}" in
            "aici run" | "aici batch" | "aici chat" | "aici serve" | "aici stage" | "aici lmtp" | "aici rt" | "aici doctor" | "aici models" | "aici models pull" | "aici models list" | "aici models path" | "aici ctrl" | "aici ctrl upload" | "aici ctrl pull" | "aici ctrl list" | "aici ctrl tag" | "aici ctrl tags" | "aici ctrl rm" | "aici ctrl new" | "aici ctrl init-js" | "aici ctrl init-py" | "aici ctrl build" | "aici ctrl test" | "aici ctrl schema" | "aici bench" | "aici bench cluster" | "aici bench constraint" | "aici bench ctrl" | "aici bench engine" | "aici bench masks" | "aici bench quality" | "aici bench rt" | "aici bench serve" | "aici grammar" | "aici grammar check" | "aici grammar accepts" | "aici grammar convert" | "aici grammar list" | "aici schema" | "aici schema check" | "aici schema accepts" | "aici cluster" | "aici cluster plan" | "aici cluster status" | "aici cluster token" | "aici node" | "aici node join" | "aici node status" | "aici node drain" | "aici node leave") at+=" ${COMP_WORDS[i]}" ;;
        esac
    done
    case "$at" in
        "aici") words="run batch chat serve stage lmtp rt doctor models ctrl bench grammar schema cluster node --version --debug --help" ;;
        "aici run") words="--prompt --regex --grammar --grammar-syntax --json-schema --structural-tag --choice --choices --substring --controller --controller-arg --whitespace --lenient --strict-schema --objects --property-order --temperature --top-k --top-p --seed --max-tokens --stop --logprobs --num-samples --model --server --dtype --device --threads --max-forks --chat --json --log --help" ;;
        "aici batch") words="--output --model --alias --server --concurrency --dtype --device --threads --help" ;;
        "aici chat") words="--model --server --dtype --device --threads --max-forks --system --regex --grammar --grammar-syntax --json-schema --structural-tag --choice --choices --substring --controller --controller-arg --whitespace --lenient --strict-schema --objects --property-order --temperature --top-k --top-p --seed --max-tokens --stop --logprobs --history --help" ;;
        "aici serve") words="--model --host --port --name --alias --api-key-file --controllers --max-queue --max-num-seqs --max-forks --max-batch-tokens --prefill-slowdown --max-context --max-body-mib --request-timeout --drain-timeout --responses-file --responses-days --memory-fraction --prefix-cache --dtype --device --threads --stages --cuts --depth --replay-timeout --token-file --cluster --cluster-address --announce --nodes --memory --min-nodes --replan-after --cors-origin --log-level --log-format --help" ;;
        "aici stage") words="--listen --model --token-file --key-file --memory --threads --device --tp --name --insecure --log-level --help" ;;
        "aici lmtp") words="--model --json --help" ;;
        "aici rt") words="--help" ;;
        "aici doctor") words="--json --help" ;;
        "aici models") words="pull list path --help" ;;
        "aici models pull") words="--json --help" ;;
        "aici models list") words="--json --help" ;;
        "aici models path") words="--json --help" ;;
        "aici ctrl") words="upload pull list tag tags rm new init-js init-py build test schema --help" ;;
        "aici ctrl upload") words="--tag --server --json --help" ;;
        "aici ctrl pull") words="--out --tag --server --json --help" ;;
        "aici ctrl list") words="--server --json --help" ;;
        "aici ctrl tag") words="--server --json --help" ;;
        "aici ctrl tags") words="--server --json --help" ;;
        "aici ctrl rm") words="--force --server --json --help" ;;
        "aici ctrl new") words="--lang --dir --json --help" ;;
        "aici ctrl init-js") words="--force --json --help" ;;
        "aici ctrl init-py") words="--force --json --help" ;;
        "aici ctrl build") words="--out --json --help" ;;
        "aici ctrl test") words="--tokenizer --json --help" ;;
        "aici ctrl schema") words="--help" ;;
        "aici bench") words="cluster constraint ctrl engine masks quality rt serve --help" ;;
        "aici bench cluster") words="--nodes --batch --model --dtype --threads --pin --prompt-tokens --num-tokens --rounds --links --recovery --quick --plot --json --help" ;;
        "aici bench constraint") words="--batch --num-tokens --rounds --quick --model --plot --json --help" ;;
        "aici bench ctrl") words="--rounds --steps --quick --model --json --help" ;;
        "aici bench engine") words="--model --random --dtype --kernels --peer --batch --device --threads --prompt-tokens --num-tokens --rounds --limit --quick --profile --prefix --plot --json --help" ;;
        "aici bench masks") words="--case --tokenizer --peer --rounds --limit --quick --plot --json --help" ;;
        "aici bench quality") words="--model --dtype --num-tokens --threads --json --help" ;;
        "aici bench rt") words="--sequences --tokenizer --rounds --quick --plot --json --help" ;;
        "aici bench serve") words="--server --model --concurrency --rate --num-tokens --rounds --quick --plot --json --help" ;;
        "aici grammar") words="check accepts convert list --help" ;;
        "aici grammar check") words="--grammar-syntax --json --help" ;;
        "aici grammar accepts") words="--grammar-syntax --json --help" ;;
        "aici grammar convert") words="--to --grammar-syntax --help" ;;
        "aici grammar list") words="--json --help" ;;
        "aici schema") words="check accepts --help" ;;
        "aici schema check") words="--whitespace --lenient --strict-schema --objects --property-order --json --help" ;;
        "aici schema accepts") words="--whitespace --lenient --strict-schema --objects --property-order --json --help" ;;
        "aici cluster") words="plan status token --help" ;;
        "aici cluster plan") words="--node --driver --dtype --context --sequences --json --help" ;;
        "aici cluster status") words="--server --watch --json --help" ;;
        "aici cluster token") words="--token-file --json --help" ;;
        "aici node") words="join status drain leave --help" ;;
        "aici node join") words="--token-file --model --memory --threads --label --listen --name --discover --help" ;;
        "aici node status") words="--name --json --help" ;;
        "aici node drain") words="--name --back --help" ;;
        "aici node leave") words="--name --now --help" ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _aici aici
