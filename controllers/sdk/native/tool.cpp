// A guest's tool as a program, linked with the guest's source: a question a line on stdin, an answer a line on stdout.
#include <cstdio>
#include <iostream>
#include <string>

#include "aici/json.hpp"
#include "aici/tool.hpp"
#include "aici/trie.hpp"
#include "native.hpp"

extern "C" {
char* aici_tool_alloc(uint32_t size);
const aici::detail::ToolAnswer* aici_tool_ask(const char* question, uint32_t len);
}

// Questions are answered without a vocabulary.
aici::TokTrie aici::TokTrie::from_host() { aici::native::broken("the vocabulary was read"); }

int main() {
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    try {
      const aici::detail::ToolAnswer* answer = aici_tool_ask(line.data(), static_cast<uint32_t>(line.size()));
      std::cout.write(answer->text, answer->len) << std::endl;
      delete[] reinterpret_cast<const uint32_t*>(answer);
    } catch (const aici::native::Failed& failed) {
      std::cout << "{\"failed\":" << aici::json::quoted(failed.message).view() << '}' << std::endl;
    }
  }
}
