// Connects the callbacks of the guest ABI to a C++ class: derive from Controller, then AICI_EXPOSE(YourClass).
#pragma once
#include <cstdint>
#include <vector>

#include "aici/host.hpp"
#include "aici/start.hpp"
#include "aici/token_set.hpp"

namespace aici {

// The decision before the next token is computed.
struct PreResult {
  uint32_t num_forks = 1;
  bool suspend = false;
  std::vector<TokenId> ff_tokens{};

  static PreResult go_on() { return {}; }
  static PreResult stop() { return {.num_forks = 0}; }
  static PreResult wait() { return {.suspend = true}; }               // skip a step
  static PreResult fork(uint32_t n) { return {.num_forks = n}; }      // n guests continue from here
  static PreResult force(std::vector<TokenId> tokens) { return {.ff_tokens = static_cast<std::vector<TokenId>&&>(tokens)}; }
};

// The decision about the next token.
struct MidResult {
  enum class Kind : uint8_t { Stop, Sample, Splice };
  Kind kind;
  const TokenSet* mask = nullptr;
  uint32_t backtrack = 0;
  std::vector<TokenId> ff_tokens{};

  static MidResult stop() { return {Kind::Stop}; }
  // `mask` must live until the callback has returned, so make the mask a member.
  static MidResult sample(const TokenSet& mask) { return {Kind::Sample, &mask}; }
  // Remove `backtrack` tokens from the end of the sequence, then append.
  static MidResult splice(uint32_t backtrack, std::vector<TokenId> tokens) {
    return {Kind::Splice, nullptr, backtrack, static_cast<std::vector<TokenId>&&>(tokens)};
  }
};

class Controller {
 public:
  virtual ~Controller() = default;
  virtual void init_prompt(Tokens) {}
  virtual PreResult pre_process() { return PreResult::go_on(); }
  virtual MidResult mid_process(Tokens fork_group) = 0;
  // Return false to save two host functions per step; `fork_group` is empty then.
  virtual bool needs_fork_group() const { return true; }
  // `tokens` were appended after `backtrack` tokens had been removed. Return whether to stop; by default after EOS.
  virtual bool post_process(Tokens tokens, uint32_t backtrack);
};

namespace detail {
void run_init_prompt(Controller&);
void run_pre(Controller&);
void run_mid(Controller&);
void run_post(Controller&);
inline Controller& from_handle(uint32_t handle) { return *reinterpret_cast<Controller*>(static_cast<uintptr_t>(handle)); }
}  // namespace detail

}  // namespace aici

// Defines the exports of the ABI for class T, which needs a default constructor. Use once, outside any namespace.
#define AICI_EXPOSE(T)                                                                                                 \
  extern "C" {                                                                                                         \
  void aici_init(void) { aici::start(); }                                                                              \
  uint32_t aici_create(void) {                                                                                         \
    aici::start();                                                                                                     \
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(static_cast<aici::Controller*>(new T())));                \
  }                                                                                                                    \
  void aici_init_prompt(uint32_t self) { aici::detail::run_init_prompt(aici::detail::from_handle(self)); }             \
  void aici_pre_process(uint32_t self) { aici::detail::run_pre(aici::detail::from_handle(self)); }                     \
  void aici_mid_process(uint32_t self) { aici::detail::run_mid(aici::detail::from_handle(self)); }                     \
  void aici_post_process(uint32_t self) { aici::detail::run_post(aici::detail::from_handle(self)); }                   \
  void aici_panic(void) { __builtin_trap(); }                                                                          \
  }
