// A program in some language, suspended and resumed by the controller that runs it.
#pragma once
#include "aici/script/sequence.hpp"

namespace aici::script {

// What a program that decides token by token wants in one step.
struct OwnStep {
  enum class Kind : uint8_t {
    Sample,  // one of `mask`
    Splice,  // remove `backtrack` tokens, then append `tokens`
    Hold,    // nothing in this step
    Skip,    // it is over, before this step
    Stop,    // the sequence ends
  };
  Kind kind = Kind::Hold;
  const TokenSet* mask = nullptr;  // lives until the next call of anything
  uint32_t backtrack = 0;
  std::vector<TokenId> tokens{};
};

// A program that has failed ends the guest with aici::fail.
class Program {
 public:
  virtual ~Program() = default;

  // Both run until the program waits for something (Sequence::await) or, if then nothing is awaited, has ended.
  virtual void start() = 0;
  virtual void resume(const Outcome& outcome) = 0;

  // While it waits for Own: what is wanted in this step, in which the sequences of `fork_group` were forked from one.
  virtual OwnStep own_step(Tokens fork_group) = 0;
  // `tokens` were appended after `backtrack` were removed. True: that was all.
  virtual bool own_done(uint32_t backtrack, Tokens tokens) = 0;
};

}  // namespace aici::script
