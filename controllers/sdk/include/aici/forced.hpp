// Forced text: the text that must come next in any case, as tokens of the model's tokenizer.
#pragma once
#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "aici/host.hpp"
#include "aici/recognizer.hpp"
#include "aici/trie.hpp"
#include "aici/utf8.hpp"

namespace aici {

// Longer text is forced in pieces, with a sampled token between: the work before a step must stay short.
inline constexpr size_t MAX_FORCED_BYTES = 256;

// The byte that must come next; none if several bytes may come or the text may end.
template <Recognizer R>
std::optional<uint8_t> only_byte(R& rec) {
  std::optional<uint8_t> only;
  for (unsigned byte = 0; byte < 256; byte++) {
    if (!rec.byte_allowed(static_cast<uint8_t>(byte))) continue;
    if (only) return std::nullopt;
    only = static_cast<uint8_t>(byte);
  }
  return rec.special_allowed(SpecialToken::EndOfSequence) ? std::nullopt : only;
}

// The tokens at the beginning of the text `run` that stay the same whatever follows. `starts`: in order, the positions
// in `run` where a token that extends beyond the run may start. `last`: the token before `run`, if known.
std::vector<TokenId> certain_tokens(const TokTrie& trie, std::optional<TokenId> last, std::string_view run,
                                    std::span<const size_t> starts);

// The tokens of the text that must come next, as far as these tokens stay the same whatever follows.
template <Recognizer R>
std::vector<TokenId> forced_tokens(const TokTrie& trie, std::optional<TokenId> last, R& rec) {
  Text bytes;
  while (bytes.size() < MAX_FORCED_BYTES) {
    std::optional<uint8_t> byte = only_byte(rec);
    if (!byte) break;
    rec.push_byte(*byte);
    bytes << static_cast<char>(*byte);
  }
  size_t size = 0;  // whole characters only: tokenizers accept nothing else
  while (next_code_point(bytes, size)) {}
  rec.pop_bytes(bytes.size() - size);
  std::string_view run = bytes.view().substr(0, size);
  std::vector<size_t> starts;
  for (size_t at = size - std::min(size, trie.max_token_len()); at < size; at++)
    if (trie.can_extend(run.substr(at), rec)) starts.push_back(at);
  rec.pop_bytes(size);
  rec.trie_finished();
  if constexpr (requires { rec.error(); })
    if (rec.error()) return {};
  return certain_tokens(trie, last, run, starts);
}

}  // namespace aici
