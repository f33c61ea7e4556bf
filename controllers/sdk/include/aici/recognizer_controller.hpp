// A controller that allows what a recognizer allows, forces text that must come, and stops if nothing can follow.
#pragma once
#include <algorithm>
#include <utility>
#include <vector>

#include "aici/constraint.hpp"
#include "aici/controller.hpp"

namespace aici {

// If R has error() -> const char*, a message ends the guest.
template <Recognizer R>
class RecognizerController : public Controller {
 public:
  RecognizerController(TokTrie trie, R rec) : trie_(static_cast<TokTrie&&>(trie)), constraint_(trie_, static_cast<R&&>(rec)) {
    // The runtime copies guests that have read their argument: the copies find the first mask in the cache.
    if (constraint_.forced().empty()) constraint_.mask();
  }

  PreResult pre_process() override {
    // Forced once until something is appended, however often the runtime asks: how often depends on how the engine
    // splits a prompt.
    if (has_forced_) return PreResult::go_on();
    forced_ = constraint_.forced();
    check();
    has_forced_ = !forced_.empty();
    return PreResult::force(forced_);
  }

  MidResult mid_process(Tokens) override {
    if (is_complete()) return MidResult::stop();
    const TokenSet& mask = constraint_.mask();
    check();
    if (mask.empty()) fail("no token of this vocabulary can continue the text");
    return MidResult::sample(mask);
  }

  bool needs_fork_group() const override { return false; }

  bool post_process(Tokens tokens, uint32_t backtrack) override {
    has_forced_ = !forced_.empty() && backtrack == 0 && std::ranges::equal(tokens, std::exchange(forced_, {}));
    if (!constraint_.take_back(backtrack)) fail("cannot take back that many tokens");
    for (TokenId token : tokens) {
      if (token == trie_.eos()) return true;
      if (!constraint_.append(token)) refuse(token);
    }
    return is_complete();
  }

 private:
  bool is_complete() {
    bool complete = constraint_.is_complete();
    check();
    return complete;
  }

  void check() {
    if (const char* why = constraint_.error()) fail(why);
  }

  [[noreturn]] void refuse(TokenId token) {
    check();
    std::string_view bytes = trie_.token(token);
    if (bytes.empty()) fail((Text("token ") << token << " has no text and is not the end of the sequence").view());
    fail((Text("token ") << token << " (\"" << bytes << "\") is not allowed here").view());
  }

  TokTrie trie_;
  RecognizerConstraint<R> constraint_;
  std::vector<TokenId> forced_;  // and not appended yet
  bool has_forced_ = false;
};

}  // namespace aici
