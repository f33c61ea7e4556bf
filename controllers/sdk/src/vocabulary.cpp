// The export aici_read_vocabulary: reads the vocabulary before there is an argument, so that the runtime can keep the
// memory of the guest and start later guests from there.
#include <utility>

#include "aici/start.hpp"
#include "aici/trie.hpp"

namespace {
aici::TokTrie* read_ahead = nullptr;  // until from_host takes it
}

namespace aici {
TokTrie TokTrie::from_host() {
  if (TokTrie* trie = std::exchange(read_ahead, nullptr)) return static_cast<TokTrie&&>(*trie);
  return TokTrie(read_blob(aici_host_token_trie()));
}
}  // namespace aici

void aici_read_vocabulary() {
  aici::start();
  if (!read_ahead) read_ahead = new aici::TokTrie(aici::TokTrie::from_host());
}
