// Count the words of a growing text; spaces, tabs and newlines separate words.
#pragma once
#include <cstdint>
#include <string_view>

namespace aici::script {

struct WordCount {
  uint32_t num = 0;  // words begun so far
  bool is_inside = false;

  void append(std::string_view text) {
    for (char c : text) {
      bool is_letter = c != ' ' && c != '\t' && c != '\n';
      num += is_letter && !is_inside;
      is_inside = is_letter;
    }
  }
};

}  // namespace aici::script
