#include "aici/forced.hpp"

namespace aici {

namespace {

// As the tokenizer parts it behind `last`: where words begin may hang on what is before them. If it would part `last` itself
// in another way, or join it to the text, then as text of its own.
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

// A tokenizer that merges neighbours makes of a text that is cut between two of its tokens what it makes of both parts. So
// those tokens are certain that all of `run` shares with what is before each of `starts`. Two cautions: inside of a
// character nothing can be told, so such a start counts as that of the character; and of white space, most tokenizers
// part the last character from the others where a word follows, so this counts as a start, too.
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
