// aici/host.hpp without a runtime. Failing throws an exception, so a fuzzer continues after a refused input.
#include "aici/host.hpp"

#include <cstdio>
#include <cstdlib>

#include "aici/start.hpp"
#include "native.hpp"

namespace {
std::string argument;
}

namespace aici {

void print(std::string_view) {}
void fail(std::string_view why) { throw native::Failed(why); }
std::vector<char> read_blob(uint32_t) { native::broken("a blob was read"); }
std::vector<char> module_arg() { return {argument.begin(), argument.end()}; }
// The single bytes of every vocabulary of with_all_bytes().
std::vector<TokenId> tokenize(std::string_view text) {
  std::vector<TokenId> tokens;
  for (char c : text) tokens.push_back(static_cast<uint8_t>(c) + 1u);
  return tokens;
}
TokenId eos_token() { return 0; }
uint32_t self_seq_id() { return AICI_UNBOUND_SEQ_ID; }
void start() {}

namespace native {

void set_module_arg(std::string_view arg) { argument = arg; }

void broken(std::string_view what) {
  fprintf(stderr, "broken: %.*s\n", static_cast<int>(what.size()), what.data());
  abort();
}

}  // namespace native
}  // namespace aici

// Functions that the ABI's glue would call: they take 32-bit addresses, so they are linked here and never run.
extern "C" {
uint32_t aici_host_read_blob(uint32_t, uint32_t, uint32_t) { aici::native::broken("a blob was read"); }
uint32_t aici_host_token_trie() { aici::native::broken("the trie was asked for"); }
uint32_t aici_host_process_arg() { aici::native::broken("the argument was asked for"); }
uint32_t aici_host_storage_cmd(uint32_t, uint32_t) { aici::native::broken("a variable was used"); }
void aici_host_return_logit_bias(uint32_t) { aici::native::broken("a mask was returned"); }
void aici_host_return_process_result(uint32_t, uint32_t) { aici::native::broken("a result was returned"); }
}
