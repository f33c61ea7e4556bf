// The two interfaces that constraints implement: recognizers of text, byte by byte.
#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "aici/slices.hpp"
#include "aici/token_set.hpp"

namespace aici {

class TokTrie;

enum class SpecialToken : uint8_t { EndOfSequence };

// A stack of states, one per byte. `top` is the state after the bytes pushed so far.
template <typename R>
concept Recognizer = requires(R r, uint8_t byte, size_t n, SpecialToken special) {
  { r.try_push_byte(byte) } -> std::same_as<bool>;  // pushes iff allowed and returns whether allowed
  { r.push_byte(byte) };                            // pushes; the caller knows that the byte is allowed
  { r.pop_bytes(n) };                               // undoes n pushes; n is at most the number of pushes since collapse
  { r.collapse() };                                 // keeps only the top; earlier pushes cannot be undone any more
  { r.byte_allowed(byte) } -> std::same_as<bool>;   // stack unchanged
  { r.special_allowed(special) } -> std::same_as<bool>;  // stack unchanged
  { r.trie_finished() };  // after a walk over the trie: the stack is as before the walk; scratch memory may be freed
};

// A recognizer whose states are small values. `append` may be called for allowed bytes only. Optional methods:
// try_append(S, byte, S& next) -> bool, faster than byte_allowed and append; mask_key(S) -> uint32_t (states with equal
// keys allow the same tokens); mask_state(S) -> S (a state that allows the same tokens, none longer than the length
// given to set_longest_token); error() -> const char* (null: none); compact(std::span<S>), may renumber states and
// rewrites the given states; num_allowed(S, const TextClass&) -> uint32_t: n only if texts of the class are allowed iff
// they have at most n code points, the last of which may be incomplete; 0 if unknown; try_allow_tokens(S, const
// TokTrie&, TokenSet&) -> bool: adds all allowed tokens, or adds nothing and returns false.
//
// A state is small, so it cannot hold text. A constraint that depends on text before it has three more methods:
// reads_back() -> bool, whether it is such; with_text(S, std::string_view) -> S: the state to keep in place of a state
// just pushed, given all text pushed; and is_overlooked(std::string_view token) -> bool, whether the states within this
// token, which are not replaced, may allow too much. Such tokens of a mask are pushed to see.
template <typename R>
concept FunctionalRecognizer = requires(R r, typename R::State state, uint8_t byte, SpecialToken special) {
  { r.initial() } -> std::same_as<typename R::State>;
  { r.append(state, byte) } -> std::same_as<typename R::State>;
  { r.byte_allowed(state, byte) } -> std::same_as<bool>;
  { r.special_allowed(state, special) } -> std::same_as<bool>;
};

// Makes a Recognizer from a FunctionalRecognizer. `reserve` sizes the stack for the longest token; the stack grows if
// text is kept on the stack.
template <FunctionalRecognizer F>
class StackRecognizer {
 public:
  using State = typename F::State;

  explicit StackRecognizer(F inner, size_t reserve = 256) : inner_(static_cast<F&&>(inner)), stack_(reserve + 1) {
    stack_[0] = inner_.initial();
    if constexpr (READS_BACK) reads_back_ = inner_.reads_back();
  }

  bool try_push_byte(uint8_t byte) {
    State next;
    if (!try_append(inner_, stack_[top_], byte, next)) return false;
    push(next, byte);
    return true;
  }
  void push_byte(uint8_t byte) { push(inner_.append(stack_[top_], byte), byte); }
  void pop_bytes(size_t num) {
    top_ -= num;
    if (reads_back_) text_.resize(text_.size() - num);
  }
  void collapse() {
    stack_[0] = stack_[top_];
    top_ = 0;
  }
  bool byte_allowed(uint8_t byte) { return inner_.byte_allowed(stack_[top_], byte); }
  bool special_allowed(SpecialToken special) { return inner_.special_allowed(stack_[top_], special); }
  // Only here may the inner recognizer renumber its states: all states in use are on the stack.
  void trie_finished() {
    if constexpr (requires(std::span<State> states) { inner_.compact(states); }) inner_.compact({stack_.data(), top_ + 1});
  }
  // Forget the n oldest pushes, which cannot be undone afterwards.
  void forget(size_t n) {
    stack_.erase(stack_.begin(), stack_.begin() + static_cast<ptrdiff_t>(n));
    top_ -= n;
  }

  // The part of the interface needed by a walk over the trie, with the top of the stack in a register: a fifth faster.
  // At most `depth` bytes may be pushed. The recognizer must not be used until the walk has ended.
  class Walk {
   public:
    bool try_push_byte(uint8_t byte) {
      State next;
      if (!try_append(*inner_, *top_, byte, next)) return false;
      *++top_ = next;
      return true;
    }
    void pop_bytes(size_t num) { top_ -= num; }

   private:
    friend StackRecognizer;
    Walk(F& inner, State* top) : inner_(&inner), top_(top) {}
    F* inner_;
    State* top_;
  };
  Walk begin_walk(size_t depth) {
    if (stack_.size() <= top_ + depth + 1) stack_.resize(top_ + depth + 2);
    stack_[top_ + 1] = mask_state();
    return Walk(inner_, &stack_[top_ + 1]);
  }

  uint32_t num_allowed(const TextClass& text)
    requires requires(F& inner, State state) { inner.num_allowed(state, text); }
  {
    return inner_.num_allowed(mask_state(), text);
  }
  bool try_allow_tokens(const TokTrie& trie, TokenSet& mask)
    requires requires(F& inner, State state) { inner.try_allow_tokens(state, trie, mask); }
  {
    return inner_.try_allow_tokens(mask_state(), trie, mask);
  }
  void set_longest_token(size_t size_bytes) {
    if constexpr (requires { inner_.set_longest_token(size_bytes); }) inner_.set_longest_token(size_bytes);
  }
  uint32_t mask_key()
    requires requires(F& inner, State state) { inner.mask_key(state); }
  {
    return inner_.mask_key(stack_[top_]);
  }
  bool reads_back() const { return reads_back_; }
  static bool is_overlooked(std::string_view token)
    requires requires { F::is_overlooked(token); }
  {
    return F::is_overlooked(token);
  }
  const char* error() const
    requires requires(const F& inner) { inner.error(); }
  {
    return inner_.error();
  }

 private:
  static constexpr bool READS_BACK = requires(F& inner) { inner.reads_back(); };

  void push(State next, uint8_t byte) {
    if constexpr (READS_BACK)
      if (reads_back_) text_.push_back(static_cast<char>(byte)), next = inner_.with_text(next, {text_.data(), text_.size()});
    if (++top_ == stack_.size()) stack_.resize(stack_.size() * 2);
    stack_[top_] = next;
  }
  State mask_state() {
    if constexpr (requires(State state) { inner_.mask_state(state); }) return inner_.mask_state(stack_[top_]);
    return stack_[top_];
  }
  static bool try_append(F& inner, State state, uint8_t byte, State& next) {
    if constexpr (requires { inner.try_append(state, byte, next); }) {
      return inner.try_append(state, byte, next);
    } else {
      if (!inner.byte_allowed(state, byte)) return false;
      next = inner.append(state, byte);
      return true;
    }
  }

  F inner_;
  std::vector<State> stack_;
  size_t top_ = 0;
  bool reads_back_ = false;
  std::vector<char> text_;  // all bytes pushed, if they are read back
};

}  // namespace aici
