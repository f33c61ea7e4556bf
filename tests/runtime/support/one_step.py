"""An engine with a single step: `python -m tests.runtime.support.one_step TOKENIZER CACHE`."""

import sys
from pathlib import Path

from aici_base.ids import SeqId
from aici_runtime.client import Runtime, RuntimeConfig
from aici_runtime.wire import MidOp, PreOp
from tests.runtime.support import wat


def main(tokenizer: str, cache: str) -> None:
    with Runtime(RuntimeConfig(tokenizer=Path(tokenizer), cache_dir=Path(cache))) as runtime:
        runtime.wait_ready()
        module_id = runtime.mk_module(wat.plain()).module_id
        runtime.instantiate(req_id="r", prompt=[], module_id=module_id, module_arg="").result(20)
        runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(SeqId(1), "r")], freed=[])
        runtime.send_mid([MidOp(SeqId(1))])
        if not runtime.recv_mid().seqs[SeqId(1)].error:
            print("masks")


if __name__ == "__main__":
    main(*sys.argv[1:])
