// Questions asked by tools outside any request: is this pattern valid, where does this input fail. JSON in, JSON out;
// no token trie, no argument, no request. `aici_controllers.ask_guest` is the other side. Runtimes do not call this.
#pragma once
#include <cstdint>
#include <cstring>
#include <string_view>

#include "aici/start.hpp"
#include "aici/text.hpp"

namespace aici::detail {

struct ToolAnswer {
  uint32_t len;
  char text[];
};

inline const ToolAnswer* tool_answer(std::string_view text) {
  auto* answer = reinterpret_cast<ToolAnswer*>(new uint32_t[1 + (text.size() + 3) / 4]);
  answer->len = static_cast<uint32_t>(text.size());
  memcpy(answer->text, text.data(), text.size());
  return answer;
}

}  // namespace aici::detail

// `answer` is a function Text(std::string_view question). Use once, outside any namespace. Memory is not freed: an
// instance answers a single question.
#define AICI_EXPOSE_TOOL(answer)                                                                                       \
  extern "C" __attribute__((export_name("aici_tool_alloc"))) char* aici_tool_alloc(uint32_t size) {                   \
    aici::start();                                                                                                     \
    return new char[size];                                                                                             \
  }                                                                                                                    \
  extern "C" __attribute__((export_name("aici_tool_ask"))) const aici::detail::ToolAnswer* aici_tool_ask(             \
      const char* question, uint32_t len) {                                                                            \
    return aici::detail::tool_answer(answer(std::string_view(question, len)).view());                                  \
  }
