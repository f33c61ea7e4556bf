// The invariants of every constraint: the masks of its controller agree with its recognizer byte by byte, with any
// tokens appended and taken back, and are never empty; only text without an alternative is forced.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aici/recognizer_controller.hpp"
#include "native.hpp"
#include "vocabulary.hpp"

namespace aici::native {

// The bytes of a fuzzer's input, taken from the front; zeros after the end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}
  explicit Input(std::string_view text) : rest_(text) {}

  bool empty() const { return rest_.empty(); }
  uint8_t byte() {
    if (rest_.empty()) return 0;
    uint8_t first = static_cast<uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    return first;
  }
  // The bytes before the next zero byte, which is removed too.
  std::string_view text() {
    size_t end = rest_.find('\0');
    std::string_view found = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    return found;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

// The tokens allowed by `rec`, found by pushes alone. False if the recognizer gave up (has an error).
template <Recognizer R>
bool expected_tokens(R& rec, const TokTrie& trie, std::vector<bool>& allowed) {
  allowed.assign(trie.vocab_size(), false);
  for (TokenId token = 0; token < trie.vocab_size(); token++) {
    std::string_view bytes = trie.token(token);
    size_t pushed = 0;
    while (pushed < bytes.size()) {
      uint8_t byte = static_cast<uint8_t>(bytes[pushed]);
      bool says = rec.byte_allowed(byte);
      bool pushes = rec.try_push_byte(byte);
      require(says == pushes, "byte_allowed and try_push_byte agree");
      if (!pushes) break;
      pushed++;
    }
    allowed[token] = !bytes.empty() && pushed == bytes.size();
    rec.pop_bytes(pushed);
  }
  allowed[trie.eos()] = rec.special_allowed(SpecialToken::EndOfSequence);
  if constexpr (requires { rec.error(); }) return rec.error() == nullptr;
  return true;
}

// Walk as `input` says: each byte chooses an allowed token, or a number of tokens to take back. `make` makes a new
// recognizer on every call. Returns the text if the walk reached an allowed end. `may_be_stuck`: an allowed text may
// have no end, because the constraint is known to be faulty.
template <typename Make>
std::optional<std::string> check_walk(const Make& make, const TokTrie& trie, Input& input, bool may_be_stuck = false, int max_steps = 24) {
  auto oracle = make();
  RecognizerController<decltype(make())> controller(trie, make());
  std::vector<TokenId> history;
  std::vector<bool> expected;
  for (int step = 0; step < max_steps; step++) {
    if (!expected_tokens(oracle, trie, expected)) return std::nullopt;
    MidResult result = MidResult::stop();
    try {
      size_t pushed = 0;
      for (TokenId token : controller.pre_process().ff_tokens) {
        for (char c : trie.token(token)) {
          require(only_byte(oracle) == static_cast<uint8_t>(c), "what is forced has no alternative");
          oracle.push_byte(static_cast<uint8_t>(c)), pushed++;
        }
      }
      oracle.pop_bytes(pushed);
      result = controller.mid_process({});
    } catch (const Failed& failed) {
      // A limit of the constraint; otherwise this would be a mask without tokens, although all bytes are tokens.
      require(may_be_stuck || failed.message.find("no token of this vocabulary") == std::string::npos, "some token is allowed");
      return std::nullopt;
    }
    std::vector<TokenId> allowed;
    for (TokenId token = 0; token < trie.vocab_size(); token++)
      if (expected[token]) allowed.push_back(token);
    require(!allowed.empty(), "a text that is allowed can be completed");
    if (result.kind == MidResult::Kind::Stop) {
      require(allowed.size() == 1 && allowed[0] == trie.eos(), "it stops where only the end is allowed");
    } else {
      require(result.kind == MidResult::Kind::Sample, "a constraint samples or stops");
      for (TokenId token = 0; token < trie.vocab_size(); token++)
        require(result.mask->allows(token) == expected[token], "the mask is what the bytes say");
    }
    if (allowed[0] == trie.eos() && (allowed.size() == 1 || input.empty())) return std::string(trie.decode(history).view());
    if (input.empty()) return std::nullopt;
    uint8_t choice = input.byte();
    uint32_t back = choice >= 0xF0 ? choice & 0x0F : 0;
    if (back > history.size()) back = static_cast<uint32_t>(history.size());
    for (uint32_t i = 0; i < back; i++) {
      oracle.pop_bytes(trie.token(history.back()).size());
      history.pop_back();
    }
    std::vector<TokenId> appended;
    if (back == 0) {
      TokenId token = allowed[(choice + 251u * input.byte()) % allowed.size()];
      if (token == trie.eos()) return std::string(trie.decode(history).view());
      appended.push_back(token);
      for (char c : trie.token(token)) oracle.push_byte(static_cast<uint8_t>(c));
      history.push_back(token);
    }
    try {
      controller.post_process(appended, back);
    } catch (const Failed& failed) {
      bool bound = failed.message.find("is not allowed here") == std::string::npos &&
                   failed.message.find("take back") == std::string::npos;
      require(bound, "what a mask allowed is accepted, and can be taken back");
      return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace aici::native
