// A controller that lets through what a recognizer allows, and stops where nothing can follow.
#pragma once
#include <optional>
#include <vector>

#include "aici/controller.hpp"
#include "aici/mask_cache.hpp"
#include "aici/recognizer.hpp"
#include "aici/trie.hpp"

namespace aici {

// The end of the text generated so far stays on the recognizer's stack, so that tokens can be taken back.
// If R has mask_key() -> uint32_t (equal keys: equal masks), masks are remembered; if it has error() -> const char*, a
// message ends the guest.
template <Recognizer R>
class RecognizerController : public Controller {
 public:
  RecognizerController(TokTrie trie, R rec)
      : trie_(static_cast<TokTrie&&>(trie)), rec_(static_cast<R&&>(rec)), mask_(trie_.empty_set()) {
    if constexpr (requires { rec_.set_longest_token(size_t{}); }) rec_.set_longest_token(trie_.max_token_len());
  }

  MidResult mid_process(Tokens) override {
    if (is_complete()) return MidResult::stop();
    const TokenSet& mask = next_mask();
    if (mask.empty()) fail("no token of this vocabulary can continue the text");
    return MidResult::sample(mask);
  }

  bool needs_fork_group() const override { return false; }

  bool post_process(Tokens tokens, uint32_t backtrack) override {
    take_back(backtrack);
    for (TokenId token : tokens) {
      if (token == trie_.eos()) return true;
      append(token);
    }
    return is_complete();
  }

 private:
  // So much text can be taken back, at least half of it: states on the stack are states that cannot be forgotten.
  static constexpr size_t MAX_KEPT_BYTES = 4096;

  const TokenSet& next_mask() {
    if constexpr (requires { rec_.mask_key(); }) {
      if (cache_.load(rec_.mask_key(), mask_)) return mask_;
      const Slice* slice = trie_.compute_mask(rec_, mask_);
      check();
      // The walk may have changed the key.
      cache_.add(rec_.mask_key(), mask_, slice ? &slice->inside : nullptr);
    } else {
      trie_.compute_mask(rec_, mask_);
      check();
    }
    return mask_;
  }

  void append(TokenId token) {
    std::string_view bytes = trie_.token(token);
    if (bytes.empty()) fail((Text("token ") << token << " has no text and is not the end of the sequence").view());
    for (char c : bytes)
      if (!rec_.try_push_byte(static_cast<uint8_t>(c))) {
        check();
        fail((Text("token ") << token << " (\"" << bytes << "\") is not allowed here").view());
      }
    lengths_.push_back(static_cast<uint8_t>(bytes.size()));
    num_kept_ += bytes.size();
    if (num_kept_ > MAX_KEPT_BYTES) forget_half();
  }

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

  void take_back(uint32_t num_tokens) {
    if (num_tokens > lengths_.size()) fail("cannot take back that many tokens");
    for (; num_tokens > 0; num_tokens--) {
      rec_.pop_bytes(lengths_.back());
      num_kept_ -= lengths_.back();
      lengths_.pop_back();
    }
  }

  // May the text end here, and can nothing follow?
  bool is_complete() {
    if (!rec_.special_allowed(SpecialToken::EndOfSequence)) return false;
    for (unsigned byte = 0; byte < 256; byte++)
      if (rec_.byte_allowed(static_cast<uint8_t>(byte))) return false;
    check();
    return true;
  }

  void check() {
    if constexpr (requires { rec_.error(); })
      if (const char* why = rec_.error()) fail(why);
  }

  TokTrie trie_;
  R rec_;
  TokenSet mask_;
  MaskCache cache_;
  std::vector<uint8_t> lengths_;  // bytes of each token that can be taken back
  size_t num_kept_ = 0;           // their sum
};

}  // namespace aici
