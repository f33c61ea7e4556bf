#include "vocabulary.hpp"

#include <algorithm>
#include <cstring>
#include <map>

namespace aici::native {
namespace {

struct Tree {
  std::map<uint8_t, Tree> children;
  uint32_t token = AICI_NO_TOKEN;
};

// Append the nodes of `tree` in preorder. `pops`: levels to go up from a node to the parent of the node after its
// subtree.
void append(const Tree& tree, uint8_t byte, uint32_t pops, std::vector<uint32_t>& words) {
  size_t at = words.size();
  words.insert(words.end(), {tree.token << 8 | byte, 0});
  size_t left = tree.children.size();
  for (const auto& [child_byte, child] : tree.children) append(child, child_byte, --left ? 1 : pops + 1, words);
  words[at + 1] = static_cast<uint32_t>((words.size() - at) / 2) << 8 | pops;
}

}  // namespace

TokTrie make_trie(std::span<const std::string> tokens) {
  Tree root;
  std::vector<uint32_t> offsets{0};
  std::string data;
  for (size_t i = 0; i < tokens.size(); i++) {
    offsets.push_back(static_cast<uint32_t>(data.size() << AICI_TOKEN_LEN_BITS | tokens[i].size()));
    data += tokens[i];
    Tree* tree = &root;
    for (char c : tokens[i]) tree = &tree->children[static_cast<uint8_t>(c)];
    if (tree != &root) tree->token = static_cast<uint32_t>(i + 1);
  }
  std::vector<uint32_t> nodes;
  append(root, 0xFF, 0, nodes);
  uint32_t node_bytes = static_cast<uint32_t>(nodes.size() * 4), offset_bytes = static_cast<uint32_t>(offsets.size() * 4);
  std::vector<uint32_t> words{AICI_TRIE_MAGIC, AICI_TRIE_HEADER_SIZE, node_bytes, offset_bytes, 0,
                              static_cast<uint32_t>(offsets.size()), 0};
  words.insert(words.end(), nodes.begin(), nodes.end());
  words.insert(words.end(), offsets.begin(), offsets.end());
  std::vector<char> blob(words.size() * 4 + data.size());
  memcpy(blob.data(), words.data(), words.size() * 4);
  memcpy(blob.data() + words.size() * 4, data.data(), data.size());
  return TokTrie(std::move(blob));
}

std::vector<std::string> with_all_bytes(std::span<const std::string_view> words) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; byte++) tokens.push_back(std::string(1, static_cast<char>(byte)));
  tokens.insert(tokens.end(), words.begin(), words.end());
  return tokens;
}

std::span<const std::string_view> common_words() {
  static constexpr std::string_view WORDS[] = {
      "  ", "   ", "\n\n", "\n  ", "\r\n", "\t\t", " \n", ", ", ": ", "\":", "\": ", "\": \"", "\", \"", "\",", "\"}", "\"]",
      "{\"", "[\"", "{}", "[]", "[[", "]]", "}}", "},", "], ", "[1", "{\n", "\\\"", "\\n", "\\u", "\\u00", "\\ud83d", "00",
      "e9", "01", "10", "12", "123", "2024", "-1", "0.", ".5", "1e", "e+", "E-", "true", "tru", "rue", "false", "null",
      " true", " null", "if", " if", "else", "while", " while (", "for (", "int", "int ", " int", "return", "return ",
      "const", "(", "()", ") {", "){", ");\n", ";\n", "++", "--", "+=", "->", "==", "!=", "<=", "&&", "||", "//", "/*", "*/",
      " = ", " + ", "a", "ab", "abc", "aa", "aaa", "b_1", "x", " x", "xyz", "The", " the", "hello", " world", "id", "name",
      "name\"", "\"name", "e\": ", "é", "\xC3", "\xA9", "€", "\xE2\x82", "\x82\xAC", "😀", "\xF0\x9F", "\x98\x80", "@", "@x",
      ".com", "://", "#", "\"\"", "''", "'a'", "'a", "SELECT", " FROM ", "select", "0x", "0xFF", "T12:", "Z", "-01", "/>",
      "abcdefghijklmnopqrstuvwxyz", "aaaaaaaaaaaaaaaa", "                "};
  return WORDS;
}

}  // namespace aici::native
