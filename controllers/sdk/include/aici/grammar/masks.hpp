// Which tokens a grammar allows, without walking the tree of tokens each time.
//
// What the lexer says about the bytes of a token has nothing to do with the parser. So it is found once and written down:
// a *record* of a part of the tree, entered with some lexer state, lists its tokens by the set of terminals that their
// last lexeme can still become, and the *crossings*: the nodes whose byte ends a lexeme that the parser sees, by terminal.
// What follows a crossing is another record, since the lexer begins anew there.
//
// A mask then asks the parser about terminals, not bytes: tokens are allowed whose set meets the viable terminals of
// the stack, and a crossing is followed with the stack after its terminal if that is viable. SKIP changes no stack, so
// it is no crossing, and words behind a blank cost nothing.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "aici/grammar/lexer.hpp"
#include "aici/grammar/stacks.hpp"
#include "aici/trie.hpp"

namespace aici::grammar {

class Masks {
 public:
  // Records are forgotten when they become larger than this.
  static constexpr size_t MAX_BYTES = 12 << 20;

  // Adds to `mask` the tokens of `trie` that can follow when the lexer is in `state` and the parser has `stack`. The
  // same trie, lexer and stacks each time.
  void allow(const TokTrie& trie, Lexer& lexer, TerminalSets& sets, Stacks& stacks, Lexer::State state, StackId stack,
             TokenSet& mask);

  // To be called when lexer states were renumbered.
  void forget();

  size_t size_bytes() const { return size_bytes_; }

 private:
  using NodeId = uint32_t;
  using GroupId = uint32_t;
  using State = Lexer::State;

  // Tokens that end in a lexeme that can become `reach`: few of them as a list, many as a set, to which a slice of the
  // vocabulary may come.
  struct Tokens {
    SetId reach;
    std::vector<TokenId> few{};
    std::unique_ptr<TokenSet> many{};
    const TokenSet* slice = nullptr;

    void add(std::span<const TokenId> tokens, uint32_t vocab_size);
    void add(const Tokens& other, uint32_t vocab_size);
    void use_set(uint32_t vocab_size);
    void allow_in(TokenSet& mask) const;
    size_t size_bytes() const;
  };
  struct Crossing {
    SymbolId terminal;
    GroupId group;
  };
  struct Record {
    std::vector<Tokens> tokens;
    std::vector<Crossing> crossings;
  };
  // Nodes of the tree that a lexeme begins with, in order.
  struct Group {
    uint32_t first, num;  // in group_nodes_
  };
  // Tokens by what they can become, while they are collected.
  class Buckets {
   public:
    Tokens& of(SetId reach);
    std::vector<Tokens> take();  // empties it

   private:
    std::vector<Tokens> tokens_;
    std::vector<uint32_t> slots_;  // (sets,)
  };
  // A part of the tree that many records are put together from: a child of the root in some state, with what is below.
  struct Part {
    std::vector<Tokens> tokens;
    std::vector<std::pair<SymbolId, NodeId>> crossings;
  };

  struct Context {
    const TokTrie& trie;
    Lexer& lexer;
    TerminalSets& sets;
    Stacks& stacks;
  };

  const Record& record_from(Context& at, State state, State start);
  const Record& record_of(Context& at, GroupId group, State start);
  void add_slice(Context& at, const Slice& slice, State state, State start);
  const Slice* slice_for(Context& at, State state);
  void add_node(Context& at, NodeId node, State state, State start);
  void add_subtree(Context& at, NodeId node, State state, State start);
  const Part& part_of(Context& at, NodeId node, State state, State start);
  void walk(Context& at, NodeId node, State state, State start, Buckets& buckets);
  void flush(Context& at, size_t num, Buckets& buckets);
  const Record& keep();
  GroupId group_of(const std::vector<NodeId>& nodes);

  // A table from 64-bit keys to numbers 0, 1, 2 ... in the order in which they were added.
  struct Keys {
    std::vector<uint64_t> keys;
    regex::InternTable table;
    uint32_t find_or_add(uint64_t key);
  };

  Keys record_keys_, part_keys_;
  std::vector<std::unique_ptr<Record>> records_;
  std::vector<std::unique_ptr<Part>> parts_;
  std::vector<Group> groups_;
  std::vector<NodeId> group_nodes_;
  regex::InternTable group_table_;
  size_t size_bytes_ = 0;

  // Scratch.
  Buckets draft_, part_draft_;
  std::vector<std::vector<NodeId>> draft_nodes_;  // (terminals,)
  std::vector<State> path_;
  std::vector<TokenId> tokens_;
  std::vector<State> ends_;
  std::vector<std::pair<SymbolId, NodeId>> crossed_;
  std::vector<std::pair<const Record*, StackId>> todo_;
};

}  // namespace aici::grammar
