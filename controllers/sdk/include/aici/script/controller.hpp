// Run a program: turn the step that the program waits for into answers to the callbacks.
#pragma once
#include <memory>

#include "aici/controller.hpp"
#include "aici/script/program.hpp"
#include "aici/script/word_count.hpp"

namespace aici::script {

// Forced text costs no step: while a program only forces, the program runs on, and all forced text goes out together.
// So the sequence as seen by the program may be ahead of the engine's sequence.
class ScriptController : public aici::Controller {
 public:
  using MakeProgram = std::unique_ptr<Program>(Sequence&);

  explicit ScriptController(MakeProgram* make) : program_(make(sequence_)) {}

  void init_prompt(Tokens prompt) override;
  PreResult pre_process() override;
  MidResult mid_process(Tokens fork_group) override;
  bool post_process(Tokens tokens, uint32_t backtrack) override;

 private:
  // The effect of the last answer is in the sequence already, or will be reported by post_process.
  enum class Sent : uint8_t { Nothing, Known, Gen, Own };

  // Tokens of a step Gen so far.
  struct Generated {
    std::vector<TokenId> tokens{};
    Text text{};
    WordCount words{};
    bool over = false;
    bool has_forced = false;  // since the last sampled token
  };

  template <typename T>
  T* awaited() {
    return std::get_if<T>(&sequence_.step_);
  }
  void settle();
  void resume(Outcome outcome);
  void force(const Fixed& fixed);
  void begin(const Gen& gen);
  void generated(TokenId token);
  void generate_forced(const Gen& gen);
  void finish_gen();
  bool try_resume_wait(const Wait& wait);
  void limit(const Gen& gen);
  bool try_find_mask(Gen& gen);
  MidResult answer(OwnStep own);
  MidResult hold();
  bool is_pending() const { return backtrack_ > 0 || !forced_.empty(); }

  Sequence sequence_;
  std::unique_ptr<Program> program_;
  TokenSet mask_{sequence_.trie_.empty_set()};
  std::unique_ptr<Constraint> any_text_{};  // for steps Gen without a constraint, made on demand
  uint32_t backtrack_ = 0;         // tokens for the engine to remove,
  std::vector<TokenId> forced_{};  // then to append
  Generated generated_{};
  Sent sent_ = Sent::Nothing;
  bool has_forced_ = false;  // in the previous pre_process
  bool has_paused_ = false;
  bool has_ended_ = false;
  bool has_begun_ = false;  // the step Gen
};

}  // namespace aici::script
