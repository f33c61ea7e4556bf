// Sample text of terminals, for messages.
#pragma once
#include <vector>

#include "aici/grammar/grammar.hpp"

namespace aici::grammar {

// One byte per class, the most readable byte of the class; the most readable classes first.
std::vector<uint8_t> readable_bytes(const std::vector<uint8_t>& classes);

// A shortest word of the terminal, of letters and digits if possible; its name in <> if no word is found quickly.
Text sample_word(const Terminal& terminal);

// Sample words with blanks between them, if the grammar skips blanks.
class Sampler {
 public:
  explicit Sampler(const Grammar& grammar);
  void add(SymbolId terminal);
  void add(std::string_view mark);
  Text take() { return static_cast<Text&&>(out_); }

 private:
  void separate();
  const Grammar& grammar_;
  bool spaced_ = false;
  std::vector<Text> words_;  // (terminals,), made when needed
  Text out_;
};

}  // namespace aici::grammar
