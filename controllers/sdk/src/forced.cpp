#include "aici/forced.hpp"

namespace aici {

namespace {

// Tokenize as the tokenizer would behind `last`: the start of a word may depend on the text before. If the tokenizer
// would spell `last` itself differently, or join `last` with the text, tokenize the text on its own.
std::vector<TokenId> spelled(const TokTrie& trie, std::optional<TokenId> last, std::string_view text) {
  if (last) {
    Text both(trie.token(*last));
    std::vector<TokenId> tokens = tokenize(both << text);
    if (!tokens.empty() && tokens[0] == *last) return {tokens.begin() + 1, tokens.end()};
  }
  return tokenize(text);
}

bool is_inside(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

// A tokenizer that merges neighbours gives the same tokens for a text cut between two of its tokens as for both parts.
// So the tokens that the whole `run` shares with the text before each of `starts` are certain. Two cautions. Nothing is
// certain inside a character, so such a start counts as the start of the character. Before a word, most tokenizers
// separate the last white-space character from the others, so this position counts as a start too.
std::vector<TokenId> certain_tokens(const TokTrie& trie, std::optional<TokenId> last, std::string_view run,
                                    std::span<const size_t> starts) {
  if (run.empty() || (!starts.empty() && starts[0] == 0)) return {};
  std::vector<TokenId> tokens = spelled(trie, last, run);
  if (trie.decode(tokens).view() != run) return {};
  size_t num_certain = tokens.size();
  auto cut = [&](size_t end) {
    size_t num = 0, at = 0;
    while (at < end) at += trie.token(tokens[num++]).size();
    if (at > end) {
      std::vector<TokenId> before = spelled(trie, last, run.substr(0, end));
      num = static_cast<size_t>(std::mismatch(tokens.begin(), tokens.end(), before.begin(), before.end()).first - tokens.begin());
    }
    num_certain = std::min(num_certain, num);
  };
  auto cut_at = [&](size_t end) {
    while (end < run.size() && is_inside(run[end])) end--;
    cut(end);
    if (end >= 2 && is_space(run[end - 1]) && is_space(run[end - 2])) cut(end - 1);
  };
  for (size_t start : starts) cut_at(start);
  cut_at(run.size());
  tokens.resize(num_certain);
  return tokens;
}

}  // namespace aici
