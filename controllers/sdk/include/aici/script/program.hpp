// A program in some language, suspended and resumed by its controller.
#pragma once
#include "aici/script/sequence.hpp"

namespace aici::script {

// The decision for one step of a program that decides token by token.
struct OwnStep {
  enum class Kind : uint8_t {
    Sample,  // a token of `mask`
    Splice,  // remove `backtrack` tokens, then append `tokens`
    Hold,    // nothing in this step
    Skip,    // the decisions end before this step
    Stop,    // the sequence ends
  };
  Kind kind = Kind::Hold;
  const TokenSet* mask = nullptr;  // valid until the next call of any method
  uint32_t backtrack = 0;
  std::vector<TokenId> tokens{};
};

// A program that has failed ends the guest with aici::fail.
class Program {
 public:
  virtual ~Program() = default;

  // Both run until the program waits for a step (Sequence::await) or has ended without waiting.
  virtual void start() = 0;
  virtual void resume(const Outcome& outcome) = 0;

  // While waiting for Own: the decision for this step, in which the sequences of `fork_group` were forked from one.
  virtual OwnStep own_step(Tokens fork_group) = 0;
  // `tokens` were appended after `backtrack` tokens had been removed. Returns true at the end of the decisions.
  virtual bool own_done(uint32_t backtrack, Tokens tokens) = 0;
};

}  // namespace aici::script
