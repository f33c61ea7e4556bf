// A constraint on generated text of any kind, behind a single interface.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "aici/forced.hpp"
#include "aici/mask_cache.hpp"
#include "aici/recognizer.hpp"
#include "aici/token_set.hpp"
#include "aici/trie.hpp"

namespace aici {

class Constraint {
 public:
  virtual ~Constraint() = default;

  // May the text end here?
  virtual bool eos_allowed() = 0;
  // May the text end here, and can nothing follow?
  virtual bool is_complete() = 0;
  // The tokens that may come next, including EOS iff the text may end. Valid until the next call of any method.
  virtual const TokenSet& mask() = 0;
  // Tokens to append without asking: their text must come, spelled as the tokenizer spells the text.
  virtual std::vector<TokenId> forced() { return {}; }
  // Accept a token other than EOS. Returns false if the token was not allowed; then the constraint is unusable.
  virtual bool append(TokenId token) = 0;
  // The reason why the constraint is unusable; null while usable.
  virtual const char* error() const { return nullptr; }
};

// The end of the text stays on the recognizer's stack, so tokens can be taken back. If R has mask_key() -> uint32_t
// (equal keys: equal masks), masks are cached.
template <Recognizer R>
class RecognizerConstraint final : public Constraint {
 public:
  // `trie` must outlive the constraint.
  RecognizerConstraint(const TokTrie& trie, R rec) : trie_(trie), rec_(static_cast<R&&>(rec)), mask_(trie.empty_set()) {
    if constexpr (requires { rec_.set_longest_token(size_t{}); }) rec_.set_longest_token(trie_.max_token_len());
  }

  bool eos_allowed() override { return rec_.special_allowed(SpecialToken::EndOfSequence); }

  bool is_complete() override {
    if (!eos_allowed()) return false;
    for (unsigned byte = 0; byte < 256; byte++)
      if (rec_.byte_allowed(static_cast<uint8_t>(byte))) return false;
    return true;
  }

  const TokenSet& mask() override {
    find_mask();
    if constexpr (requires { rec_.is_overlooked(std::string_view()); })
      if (rec_.reads_back()) check_overlooked();
    return mask_;
  }

  std::vector<TokenId> forced() override { return forced_tokens(trie_, last_, rec_); }

  bool append(TokenId token) override {
    std::string_view bytes = trie_.token(token);
    if (bytes.empty()) return false;
    for (char c : bytes)
      if (!rec_.try_push_byte(static_cast<uint8_t>(c))) return false;
    last_ = token;
    lengths_.push_back(static_cast<uint8_t>(bytes.size()));
    num_kept_ += bytes.size();
    if (num_kept_ > MAX_KEPT_BYTES) forget_half();
    return true;
  }

  // Returns false if fewer tokens can be taken back.
  bool take_back(uint32_t num_tokens) {
    if (num_tokens > lengths_.size()) return false;
    if (num_tokens > 0) last_.reset();
    for (; num_tokens > 0; num_tokens--) {
      rec_.pop_bytes(lengths_.back());
      num_kept_ -= lengths_.back();
      lengths_.pop_back();
    }
    return true;
  }

  const char* error() const override {
    if constexpr (requires { rec_.error(); }) return rec_.error();
    return nullptr;
  }

 private:
  void find_mask() {
    if constexpr (requires { rec_.mask_key(); }) {
      if (cache_.load(rec_.mask_key(), mask_)) return;
      const Slice* slice = trie_.compute_mask(rec_, mask_);
      // The walk may have changed the key.
      if (!error()) cache_.add(rec_.mask_key(), mask_, slice ? &slice->inside : nullptr);
    } else {
      trie_.compute_mask(rec_, mask_);
    }
  }

  void check_overlooked() {
    if (!knows_overlooked_) find_overlooked();
    knows_overlooked_ = true;
    for (TokenId token : overlooked_) {
      if (!mask_.allows(token)) continue;
      size_t pushed = 0;
      std::string_view bytes = trie_.token(token);
      while (pushed < bytes.size() && rec_.try_push_byte(static_cast<uint8_t>(bytes[pushed]))) pushed++;
      rec_.pop_bytes(pushed);
      if (pushed < bytes.size()) mask_.disallow(token);
    }
  }

  // Such tokens hold quotes, so they are not among the text inside of a JSON string: most of a vocabulary.
  void find_overlooked() {
    const TokenSet& inside = trie_.slices()[0].inside;
    for (uint32_t i = 0; i < inside.num_words(); i++)
      for (uint32_t others = ~inside.word(i); others; others &= others - 1) {
        TokenId token = i * 32 + static_cast<TokenId>(__builtin_ctz(others));
        if (rec_.is_overlooked(trie_.token(token))) overlooked_.push_back(token);
      }
  }

  // Limit of the text that can be taken back; at least half is kept. A state on the stack cannot be forgotten.
  static constexpr size_t MAX_KEPT_BYTES = 4096;

  void forget_half() {
    if constexpr (requires { rec_.forget(size_t{}); }) {
      size_t num_bytes = 0;
      size_t num_tokens = lengths_.size() / 2;
      for (size_t i = 0; i < num_tokens; i++) num_bytes += lengths_[i];
      lengths_.erase(lengths_.begin(), lengths_.begin() + static_cast<ptrdiff_t>(num_tokens));
      rec_.forget(num_bytes);
      num_kept_ -= num_bytes;
    }
  }

  const TokTrie& trie_;
  R rec_;
  TokenSet mask_;
  MaskCache cache_;
  std::vector<TokenId> overlooked_;  // see FunctionalRecognizer
  bool knows_overlooked_ = false;
  std::optional<TokenId> last_{};  // the last appended token
  std::vector<uint8_t> lengths_;  // bytes of each token that can be taken back
  size_t num_kept_ = 0;           // sum of text_bytes_
};

}  // namespace aici
