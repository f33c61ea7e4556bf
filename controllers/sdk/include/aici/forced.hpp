// What a constraint forces: text that must come, whatever is generated after it, in tokens of the model's tokenizer.
#pragma once
#include <algorithm>
#include <optional>
#include <vector>

#include "aici/host.hpp"
#include "aici/recognizer.hpp"
#include "aici/trie.hpp"
#include "aici/utf8.hpp"

namespace aici {

// Longer text is forced piece by piece, a sampled token between two: what precedes a step must not take long.
inline constexpr size_t MAX_FORCED_BYTES = 256;

// The byte that must come next; none when there are several, or when the text may end.
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

// The tokens that the tokenizer makes of the text that must come next, whatever follows.
//
// A tokenizer that merges neighbours makes of a text that is cut between two of its tokens what it makes of both parts. So
// of the text that must come, `run`, those tokens are certain that its beginnings share: all of it, and each beginning
// after which a token may start that goes on behind the end of `run`. Inside of a character there is no telling: such a
// beginning counts without that character. Of white space, most tokenizers part the last character from the others where
// a word follows: so a beginning counts without it, too.
template <Recognizer R>
std::vector<TokenId> forced_tokens(const TokTrie& trie, R& rec) {
  Text bytes;
  while (bytes.size() < MAX_FORCED_BYTES) {
    std::optional<uint8_t> byte = only_byte(rec);
    if (!byte) break;
    rec.push_byte(*byte);
    bytes << static_cast<char>(*byte);
  }
  size_t size = 0;  // of whole characters: a tokenizer takes no others
  while (next_code_point(bytes, size)) {}
  rec.pop_bytes(bytes.size() - size);
  std::string_view run = bytes.view().substr(0, size);
  std::vector<size_t> ends;  // of the beginnings
  for (size_t at = size - std::min(size, trie.max_token_len()); at < size; at++)
    if (trie.can_extend(run.substr(at), rec)) ends.push_back(at);
  rec.pop_bytes(size);
  rec.trie_finished();
  if constexpr (requires { rec.error(); })
    if (rec.error()) return {};
  auto is_space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  if (run.empty() || (!ends.empty() && ends[0] == 0)) return {};
  ends.push_back(size);
  for (size_t i = 0, num = ends.size(); i < num; i++) {
    size_t end = ends[i];
    while (end < size && (static_cast<uint8_t>(run[end]) & 0xC0) == 0x80) end--;
    ends[i] = end;
    if (end >= 2 && is_space(run[end - 1]) && is_space(run[end - 2])) ends.push_back(end - 1);
  }
  std::optional<std::vector<TokenId>> certain;
  for (size_t end : ends) {
    std::vector<TokenId> tokens = tokenize(run.substr(0, end));
    if (trie.decode(tokens).view() != run.substr(0, end)) return {};
    if (!certain) certain = tokens;
    certain->erase(std::mismatch(certain->begin(), certain->end(), tokens.begin(), tokens.end()).first, certain->end());
  }
  return *certain;
}

}  // namespace aici
