// The tokens allowed by a grammar, without walking the tree of tokens each time.
//
// What the lexer does with the bytes of a token does not depend on the parser, so it is recorded once. A *record* of a
// part of the tree, entered in some lexer state, lists its tokens by the set of terminals that their last lexeme can
// still become. The record also lists the *crossings* by terminal: nodes whose byte ends a lexeme that the parser sees.
// Another record describes the text after a crossing, because the lexer starts anew there.
//
// So a mask asks the parser about terminals, not bytes. Tokens are allowed if their set meets the viable terminals of
// the stack. A crossing is followed, with the stack after its terminal, if the terminal is viable. SKIP changes no
// stack and is no crossing, so words after a blank cost nothing.
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
  // Records larger than this in total are forgotten.
  static constexpr size_t MAX_BYTES = 12 << 20;

  // Add to `mask` the tokens of `trie` that can follow with the lexer in `state` and the parser at `stack`. Always call
  // with the same trie, lexer and stacks.
  void allow(const TokTrie& trie, Lexer& lexer, TerminalSets& sets, Stacks& stacks, Lexer::State state, StackId stack,
             TokenSet& mask);

  // Call after lexer states were renumbered.
  void forget();

  size_t size_bytes() const { return size_bytes_; }

 private:
  using NodeId = uint32_t;
  using GroupId = uint32_t;
  using State = Lexer::State;

  // Tokens that end in a lexeme that can become `reach`: few tokens as a list, many as a set, perhaps with a slice of
  // the vocabulary.
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
    SymbolId lexeme;
    GroupId group;
  };
  // A node, entered with its byte.
  struct Entered {
    NodeId node;
    State state;
  };
  struct Record {
    std::vector<Tokens> tokens;
    std::vector<Crossing> crossings;
    std::vector<Entered> left_out;  // the subtrees of the rest; empty once the rest is recorded
    SetId rest_reach;               // all that the lexemes of the rest can become; UNKNOWN if nothing was left out
    std::unique_ptr<Record> rest{};
  };
  // Nodes of the tree at which a lexeme begins, in order.
  struct Group {
    uint32_t first, num;  // in group_nodes_
  };
  // Collects tokens by the terminals that they can become.
  class Buckets {
   public:
    Tokens& of(SetId reach);
    std::vector<Tokens> take();  // empties the collection

   private:
    std::vector<Tokens> tokens_;
    std::vector<uint32_t> slots_;  // (sets,)
  };
  // A part of the tree from which many records are assembled: a child of the root in some state, with its subtree.
  struct Part {
    std::vector<Tokens> tokens;
    std::vector<std::pair<SymbolId, NodeId>> crossings;
  };

  struct Context {
    const TokTrie& trie;
    Lexer& lexer;
    TerminalSets& sets;
    Stacks& stacks;
    SetId viable;  // parts that cannot become any of these terminals are left out; UNKNOWN: nothing is left out
  };

  Record& record_from(Context& at, State state, State start);
  Record& record_of(Context& at, GroupId group, State start);
  Record& rest_of(Context& at, Record& record, State start);
  void add_slice(Context& at, const Slice& slice, State state, State start);
  const Slice* slice_for(Context& at, State state);
  void add_node(Context& at, NodeId node, State state, State start);
  void add_crossing(SymbolId lexeme, NodeId node);
  void add_subtree(Context& at, NodeId node, State state, State start);
  const Part& part_of(Context& at, NodeId node, State state, State start);
  void walk(Context& at, NodeId node, State state, State start, Buckets& buckets);
  void walk_below(Context& at, NodeId first, NodeId last, State state, State start, Buckets& buckets);
  void find(Context& at, NodeId node, State reached, Buckets& buckets);
  void flush(Context& at, Buckets& buckets);
  std::unique_ptr<Record> keep(Context& at);
  GroupId group_of(const std::vector<NodeId>& nodes);

  // A table from 64-bit keys to numbers 0, 1, 2 ... in the order of insertion.
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
  std::vector<std::vector<NodeId>> draft_nodes_;  // (lexemes,)
  std::vector<TokenId> tokens_;  // found by a walk and not in a bucket yet; and a spare place
  std::vector<State> ends_;      // (tokens,)
  size_t num_found_ = 0;
  std::vector<std::pair<SymbolId, NodeId>> crossed_;
  std::vector<Entered> left_out_;
  std::vector<std::pair<Record*, StackId>> todo_;
};

}  // namespace aici::grammar
