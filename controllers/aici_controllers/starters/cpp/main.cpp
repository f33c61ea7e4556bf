// The answer is "yes" or "no", followed by a forced full stop.
#include "aici/controller.hpp"
#include "aici/recognizer.hpp"
#include "aici/trie.hpp"

namespace {

constexpr std::string_view WORDS[] = {"yes", "no"};

// The possible words, byte by byte: one bit for each word that begins with the bytes so far.
class OneOfTheWords {
 public:
  struct State {
    uint32_t words, num_bytes;
  };
  State initial() const { return {(1u << std::size(WORDS)) - 1, 0}; }
  State append(State state, uint8_t byte) const {
    State next{0, state.num_bytes + 1};
    for (size_t i = 0; i < std::size(WORDS); i++) {
      bool goes_on = WORDS[i].size() > state.num_bytes && static_cast<uint8_t>(WORDS[i][state.num_bytes]) == byte;
      if ((state.words >> i & 1) && goes_on) next.words |= 1u << i;
    }
    return next;
  }
  bool byte_allowed(State state, uint8_t byte) const { return append(state, byte).words != 0; }
  // May the text end here?
  bool special_allowed(State state, aici::SpecialToken) const {
    for (size_t i = 0; i < std::size(WORDS); i++)
      if ((state.words >> i & 1) && WORDS[i].size() == state.num_bytes) return true;
    return false;
  }
};

class Answer : public aici::Controller {
 public:
  // Before each token: force text, wait, fork, stop or continue.
  aici::PreResult pre_process() override {
    return is_answered_ ? aici::PreResult::force(aici::tokenize(".")) : aici::PreResult::go_on();
  }

  // While the model computes: which tokens may come next.
  aici::MidResult mid_process(aici::Tokens) override {
    trie_.compute_mask(words_, mask_);
    mask_.disallow(trie_.eos());
    return aici::MidResult::sample(mask_);
  }

  // After each token, sampled or forced: whether to stop.
  bool post_process(aici::Tokens tokens, uint32_t) override {
    if (is_answered_) return true;
    for (char c : trie_.decode(tokens).view()) {
      words_.push_byte(static_cast<uint8_t>(c));
      answer_ << c;
    }
    is_answered_ = words_.special_allowed(aici::SpecialToken::EndOfSequence);
    if (is_answered_) aici::print((aici::Text("the answer is ") << answer_ << "\n").view());
    return false;
  }

 private:
  aici::TokTrie trie_ = aici::TokTrie::from_host();
  aici::StackRecognizer<OneOfTheWords> words_{OneOfTheWords()};
  aici::TokenSet mask_ = trie_.empty_set();
  aici::Text answer_;
  bool is_answered_ = false;
};

}  // namespace

AICI_EXPOSE(Answer)
