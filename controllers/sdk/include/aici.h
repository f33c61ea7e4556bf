/* The interface between a controller and the runtime, for authors who write C (C++ authors: aici/controller.hpp).

   A controller is a Wasm module; a running instance (a guest) decides about one sequence of tokens. The runtime
   calls the exports below one at a time, never concurrently. Pointers and lengths are u32 offsets into the exported
   `memory`; all JSON is UTF-8 without a terminating NUL.

   EXPORTS (define all; this header declares them, so the compiler checks the signatures)
     void     aici_init(void)              called first, once
     uint32_t aici_create(void)            make the controller; the result is passed to all calls below as `self`
     void     aici_init_prompt(self)       argument {"prompt":[u32]}              result {}
     void     aici_pre_process(self)       argument {}                            result {"num_forks":1,"suspend":false,"ff_tokens":[]}
     void     aici_mid_process(self)       argument {"fork_group":[u32]}          result one of
                                             "Stop"
                                             {"SampleWithBias":{}}   after aici_host_return_logit_bias
                                             {"Splice":{"backtrack":0,"ff_tokens":[u32]}}
     void     aici_post_process(self)      argument {"tokens":[u32],"backtrack":0} result {"stop":false}
   Optional: void aici_panic(void), called after a fatal error of the runtime, so that the guest traps with a stack.
   Optional: void aici_read_vocabulary(void), called between aici_init and aici_create, or not at all. The guest may read
   the token trie and the EOS token, and keep what it makes of them. The runtime stores the memory of the guest after the
   call and starts later guests from the copy; a guest that reads anything else here starts as usual. The C++ SDK has it.

   Each callback reads its argument from the blob named by aici_host_process_arg() and must call
   aici_host_return_process_result before returning. Time limits with aici run and aici serve: 5 s for init, create and
   init_prompt together, 100 ms for mid, 50 ms for post and pre together (other cases: runtime/LIMITS.md).

   pre_process   num_forks 0 stops, n > 1 forks the guest into n; suspend waits for a step (num_forks must be 1);
                 ff_tokens are appended without sampling: post_process follows, then pre_process is called again.
   mid_process   runs while the model computes. The mask is ceil(vocab/32) u32 words, token t allowed iff bit t%32 of
                 word t/32 is set. A splice removes `backtrack` tokens, then appends ff_tokens.
   post_process  reports the appended tokens, and how many tokens were removed before.

   IMPORTS (module env)
     uint32_t aici_host_read_blob(blob, dst, size)  copies min(size, length) bytes; returns the whole length
     uint32_t aici_host_token_trie(void)            blob: the token trie (layout: aici/trie.hpp)
     uint32_t aici_host_module_arg(void)            blob: the argument of the request, e.g. the text of a regex
     uint32_t aici_host_process_arg(void)           blob: the argument of this callback
     uint32_t aici_host_tokens(void)                blob: always empty
     uint32_t aici_host_tokenize(src, len)          blob: u32 token ids, little endian; valid until the next call
     void     aici_host_return_logit_bias(mask)     only in mid_process; ORs the mask into this sequence's row
     uint32_t aici_host_self_seq_id(void)           AICI_UNBOUND_SEQ_ID before the sequence has an id
     void     aici_host_return_process_result(src, len)  the last call wins
     uint32_t aici_host_storage_cmd(src, len)       JSON command in; blob: JSON answer (see aici/variables.hpp)
     uint32_t aici_host_eos_token(void)             the id of the end-of-sequence token
     void     aici_host_stop(void)                  does not return: the guest failed; say why in the log first
   The log is file descriptor 1 or 2 of wasi_snapshot_preview1.fd_write (printf works); 64 KiB are kept. */
#ifndef AICI_H
#define AICI_H

#include "aici_abi.h"

#endif
