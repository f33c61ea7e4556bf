#include "aici/script/controller.hpp"

#include <algorithm>
#include <utility>

#include "aici/json.hpp"
#include "aici/script/constraints.hpp"
#include "aici/variables.hpp"

namespace aici::script {

namespace {

// Limit of text forced at once: a program that forces forever reaches the end of its sequence, not of its memory.
constexpr size_t MAX_FORCED = 1024;

}  // namespace

void ScriptController::init_prompt(Tokens prompt) {
  sequence_.tokens_.assign(prompt.begin(), prompt.end());
  sequence_.prompt_len_ = prompt.size();
  program_->start();
  has_ended_ = !sequence_.is_waiting();
  // Prepare the first answer here, where no step waits for the guest.
  settle();
}

PreResult ScriptController::pre_process() {
  bool is_second_round = std::exchange(has_forced_, false);
  settle();
  if (is_pending()) {
    // The first round of each step forces as much as possible; the rest must wait for mid_process.
    if (backtrack_ > 0 || is_second_round) return PreResult::go_on();
    has_forced_ = true;
    sent_ = Sent::Known;
    return PreResult::force(std::exchange(forced_, {}));
  }
  if (has_ended_) return PreResult::stop();
  if (Fork* fork = awaited<Fork>()) return PreResult::fork(fork->num);
  if (awaited<Wait>()) return PreResult::wait();
  if (awaited<Pause>()) {
    has_paused_ = true;
    return PreResult::wait();
  }
  return PreResult::go_on();
}

MidResult ScriptController::mid_process(Tokens fork_group) {
  if (Fork* fork = awaited<Fork>(); fork && !is_pending()) {
    auto self = std::find(fork_group.begin(), fork_group.end(), self_seq_id());
    if (fork_group.size() != fork->num || self == fork_group.end())
      fail(Text("the host has made ") << fork_group.size() << " forks where the program wants " << fork->num);
    resume({.fork = static_cast<uint32_t>(self - fork_group.begin())});
    settle();
  }
  for (;; settle()) {
    if (is_pending()) {
      sent_ = Sent::Known;
      return MidResult::splice(std::exchange(backtrack_, 0), std::exchange(forced_, {}));
    }
    if (has_ended_) return MidResult::stop();
    if (awaited<Own>()) {
      OwnStep own = program_->own_step(fork_group);
      if (own.kind != OwnStep::Kind::Skip) return answer(static_cast<OwnStep&&>(own));
      resume({});
    } else if (Gen* gen = awaited<Gen>()) {
      if (try_find_mask(*gen)) {
        sent_ = Sent::Gen;
        return MidResult::sample(mask_);
      }
      generated_.over = true;
    } else {
      return hold();
    }
  }
}

bool ScriptController::post_process(Tokens tokens, uint32_t backtrack) {
  Sent sent = std::exchange(sent_, Sent::Nothing);
  if (sent == Sent::Gen) {
    for (TokenId token : tokens) generated(token);
    generated_.has_forced = false;
  }
  if (sent == Sent::Own) {
    sequence_.tokens_.resize(sequence_.tokens_.size() - std::min<size_t>(backtrack, sequence_.tokens_.size()));
    sequence_.tokens_.insert(sequence_.tokens_.end(), tokens.begin(), tokens.end());
    if (program_->own_done(backtrack, tokens)) resume({});
  }
  settle();
  return has_ended_ && !is_pending();
}

// Run the program as far as possible without the engine.
void ScriptController::settle() {
  for (;;) {
    if (Fixed* fixed = awaited<Fixed>()) {
      if (forced_.size() >= MAX_FORCED) return;
      force(*fixed);
      resume({.tokens = static_cast<std::vector<TokenId>&&>(fixed->tokens)});
    } else if (Gen* gen = awaited<Gen>()) {
      if (!std::exchange(has_begun_, true)) begin(*gen);
      generate_forced(*gen);
      if (!generated_.over) return;
      finish_gen();
    } else if (Wait* wait = awaited<Wait>()) {
      if (!try_resume_wait(*wait)) return;
    } else if (Fork* fork = awaited<Fork>(); fork && fork->num == 1) {
      resume({});
    } else if (awaited<Pause>() && has_paused_) {
      has_paused_ = false;
      resume({});
    } else {
      return;
    }
  }
}

void ScriptController::resume(Outcome outcome) {
  sequence_.step_ = std::monostate{};
  program_->resume(outcome);
  has_ended_ = !sequence_.is_waiting();
}

void ScriptController::force(const Fixed& fixed) {
  std::vector<TokenId>& tokens = sequence_.tokens_;
  if (fixed.keep && *fixed.keep > tokens.size()) fail("the place to go back to was removed itself");
  if (fixed.keep && *fixed.keep < tokens.size()) {
    size_t num_removed = tokens.size() - *fixed.keep;
    sequence_.log(1, Text("BACKTRACK ") << num_removed << ' ' << json::quoted(sequence_.trie_.decode(Tokens(tokens).subspan(*fixed.keep))));
    size_t num_unsent = std::min(num_removed, forced_.size());
    forced_.resize(forced_.size() - num_unsent);
    backtrack_ += static_cast<uint32_t>(num_removed - num_unsent);
    tokens.resize(*fixed.keep);
    sequence_.prompt_len_ = std::min(sequence_.prompt_len_, tokens.size());
    if (tokens.empty() && fixed.tokens.empty()) fail("all tokens of the sequence were removed: at least one must stay");
  }
  sequence_.log(1, Text("FIXED ") << json::quoted(sequence_.trie_.decode(fixed.tokens)));
  forced_.insert(forced_.end(), fixed.tokens.begin(), fixed.tokens.end());
  tokens.insert(tokens.end(), fixed.tokens.begin(), fixed.tokens.end());
}

void ScriptController::begin(const Gen& gen) {
  generated_ = {};
  generated_.over = gen.max_tokens == 0 || gen.max_bytes == 0u || gen.max_words == 0u || (gen.constraint && gen.constraint->is_complete());
}

void ScriptController::generated(TokenId token) {
  Gen* gen = awaited<Gen>();
  if (!gen || generated_.over) fail("more tokens came than were asked for");
  sequence_.tokens_.push_back(token);
  generated_.tokens.push_back(token);
  if (token == sequence_.trie_.eos()) {
    generated_.over = true;
    return;
  }
  generated_.text << sequence_.trie_.token(token);
  generated_.words.append(sequence_.trie_.token(token));
  if (gen->constraint && !gen->constraint->append(token)) {
    if (const char* why = gen->constraint->error()) fail(why);
    fail(Text("token ") << token << " (" << json::quoted(sequence_.trie_.token(token)) << ") is not allowed here");
  }
  bool has_stop = !gen->stop_at.empty() && generated_.text.view().find(gen->stop_at) != std::string_view::npos;
  bool has_words = gen->max_words && generated_.words.num >= *gen->max_words && !generated_.words.is_inside;
  bool is_full = generated_.tokens.size() >= gen->max_tokens || generated_.text.size() == gen->max_bytes;
  generated_.over = has_stop || has_words || is_full || (gen->constraint && gen->constraint->is_complete());
}

// Text forced by the constraint goes out with text forced by the program, as if sampled. Not if text is counted: then
// the length of a token matters.
void ScriptController::generate_forced(const Gen& gen) {
  if (!gen.constraint || gen.max_bytes || gen.max_words || forced_.size() >= MAX_FORCED) return;
  if (generated_.over || std::exchange(generated_.has_forced, true)) return;
  for (TokenId token : gen.constraint->forced()) {
    forced_.push_back(token);
    generated(token);
    if (generated_.over) return;
  }
  if (const char* why = gen.constraint->error()) fail(why);
}

void ScriptController::finish_gen() {
  Gen* gen = awaited<Gen>();
  sequence_.log(1, Text("GEN ") << json::quoted(generated_.text));
  if (!gen->variable.empty()) set_variable(gen->variable, generated_.text);
  has_begun_ = false;
  resume({.tokens = std::exchange(generated_.tokens, {})});
}

bool ScriptController::try_resume_wait(const Wait& wait) {
  Outcome outcome;
  for (const Text& name : wait.names) {
    std::optional<Text> value = get_variable(name);
    if (!value) return false;
    outcome.values.push_back(static_cast<Text&&>(*value));
  }
  resume(static_cast<Outcome&&>(outcome));
  return true;
}

// The tokens that may be sampled; returns false if a limit leaves none.
bool ScriptController::try_find_mask(Gen& gen) {
  if (gen.constraint) {
    mask_.assign(gen.constraint->mask());
    if (const char* why = gen.constraint->error()) fail(why);
  } else {
    if (!any_text_) any_text_ = any_text(sequence_.trie_);
    mask_.assign(any_text_->mask());
  }
  TokenId eos = sequence_.trie_.eos();
  if (mask_.empty()) {
    sequence_.log(1, "Constraint doesn't allow any tokens; adding EOS");
    mask_.allow(eos);
  } else if (gen.max_bytes || gen.max_words) {
    bool has_eos = mask_.allows(eos);
    mask_.disallow(eos);
    limit(gen);
    if (mask_.empty()) return false;
    if (has_eos) mask_.allow(eos);
  }
  return true;
}

void ScriptController::limit(const Gen& gen) {
  const TokTrie& trie = sequence_.trie_;
  for (TokenId token = 0; token < trie.vocab_size(); token++) {
    if (!mask_.allows(token)) continue;
    std::string_view text = trie.token(token);
    WordCount words = generated_.words;
    if (gen.max_words) words.append(text);
    bool is_too_long = gen.max_bytes && generated_.text.size() + text.size() > *gen.max_bytes;
    if (is_too_long || (gen.max_words && words.num > *gen.max_words)) mask_.disallow(token);
  }
}

MidResult ScriptController::answer(OwnStep own) {
  bool is_empty = own.backtrack == 0 && own.tokens.empty();
  if (own.kind == OwnStep::Kind::Stop) {
    has_ended_ = true;
    return MidResult::stop();
  }
  if (own.kind == OwnStep::Kind::Hold || (own.kind == OwnStep::Kind::Splice && is_empty)) return hold();
  sent_ = Sent::Own;
  if (own.kind == OwnStep::Kind::Splice) return MidResult::splice(own.backtrack, static_cast<std::vector<TokenId>&&>(own.tokens));
  if (own.mask->empty()) fail("the program allows no token");
  mask_.assign(*own.mask);
  return MidResult::sample(mask_);
}

// Splice the last token back in: the protocol has no step without effect.
MidResult ScriptController::hold() {
  if (sequence_.tokens_.empty()) fail("a step can be let pass only when the sequence has a token: its prompt is empty");
  sent_ = Sent::Known;
  return MidResult::splice(1, {sequence_.tokens_.back()});
}

}  // namespace aici::script
