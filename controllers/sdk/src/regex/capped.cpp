// Remove counts that no token can exhaust, and keys that hardly a token can repeat.
#include <algorithm>

#include "aici/regex/code_points.hpp"
#include "aici/regex/expr.hpp"

namespace aici::regex {
namespace {

// Limits of the search: parts of a list, and levels of alternatives in a part. Counts beyond stay as they are.
constexpr int MAX_DEPTH = 6;
constexpr uint32_t MAX_WAYS = 16;

// Bytes of the shortest text, and bytes that at most are needed to end a text, begun or not.
struct Ending {
  uint32_t shortest, longest;
};
constexpr uint32_t FAR = 1 << 24;  // or unknown
constexpr int MAX_ENDING_DEPTH = 32;
constexpr uint32_t MAX_ENDING_NODES = 1000;

uint32_t sum(uint32_t a, uint32_t b) { return std::min(a + b, FAR); }
uint32_t product(uint32_t a, uint32_t b) { return static_cast<uint32_t>(std::min<uint64_t>(uint64_t{a} * b, FAR)); }

ExprId json_character(Exprs& exprs) {
  CodePoints all;
  all.add(0, MAX_CODE_POINT);
  return all.to_expr(exprs, Encoding::JsonString);
}

}  // namespace

ExprId Exprs::capped(ExprId e, uint32_t longest, Written written) { return capped(e, longest, written, 0); }

// Never inside intersections and complements, where a later count can decide what is allowed here. Except a limit on the
// length of a JSON string: it decides nothing if, after any token, the text of the other side can end within the limit.
// Expressions beside such a limit describe JSON strings too.
ExprId Exprs::capped(ExprId e, uint32_t longest, Written written, int depth) {
  if (depth == MAX_DEPTH) return e;
  Node node = nodes_[e];
  switch (node.kind) {
    case Kind::Concat: {
      ExprId head = capped(node.a, longest, written, depth + 1), tail = capped(node.b, longest, written, depth + 1);
      return head == node.a && tail == node.b ? e : concat(head, tail);
    }
    case Kind::Alt: {
      if (node.b > MAX_WAYS) return e;
      std::vector<ExprId> ways;
      bool changed = false;
      for (uint32_t i = 0; i < node.b; i++) {
        ways.push_back(capped(members_[node.a + i], longest, written, depth + 1));
        changed |= ways.back() != members_[node.a + i];
      }
      return changed ? alt(static_cast<std::vector<ExprId>&&>(ways)) : e;
    }
    case Kind::Repeat:
      // Every turn takes at least a byte. After `longest` turns nothing that follows can be in the same token.
      if (node.c == UNBOUNDED && node.b <= longest) return e;
      if (node.c < longest || nullable(node.a)) return e;
      return repeat(node.a, node.b < longest ? node.b : longest, UNBOUNDED);
    case Kind::Unique:
      return written == Written::Forgotten ? forgotten(uniques_[node.a]) : e;
    case Kind::And: {
      if (longest == UNBOUNDED) return e;
      const ExprId character = json_character(*this);
      auto is_limit = [&](ExprId member) {
        const Node& at = nodes_[member];
        return at.kind == Kind::Repeat && at.a == character && at.b == 0;
      };
      uint32_t budget = MAX_ENDING_NODES;
      auto ending_of = [&](auto& self, ExprId part, int level) -> Ending {
        const Node& at = nodes_[part];
        if (level == MAX_ENDING_DEPTH || budget == 0) return {FAR, FAR};
        budget--;
        switch (at.kind) {
          case Kind::Empty:
            return {0, 0};
          case Kind::Bytes:
            return {1, 1};
          case Kind::Concat: {
            std::vector<ExprId> parts;
            for (; nodes_[part].kind == Kind::Concat; part = nodes_[part].b) parts.push_back(nodes_[part].a);
            Ending rest = self(self, part, level + 1);
            for (size_t i = parts.size(); i-- > 0;) {
              Ending first = self(self, parts[i], level + 1);
              rest = {sum(first.shortest, rest.shortest), std::max(sum(first.longest, rest.shortest), rest.longest)};
            }
            return rest;
          }
          case Kind::Alt: {
            Ending all{FAR, 0};
            for (ExprId member : members(at)) {
              Ending one = self(self, member, level + 1);
              all = {std::min(all.shortest, one.shortest), std::max(all.longest, one.longest)};
            }
            return all;
          }
          case Kind::Repeat: {
            Ending turn = self(self, at.a, level + 1);
            uint32_t further = at.b > 0 ? product(at.b - 1, turn.shortest) : 0;
            return {product(at.b, turn.shortest), sum(turn.longest, further)};
          }
          case Kind::And:  // a shortest text is within the limit, since there is one
            for (uint32_t i = 0; i < 2 && at.b == 2; i++)
              if (is_limit(members(at)[i])) return self(self, members(at)[1 - i], level + 1);
            return {FAR, FAR};
          default:
            return {FAR, FAR};
        }
      };
      for (uint32_t i = 0; i < 2 && node.b == 2; i++) {
        ExprId limit = members_[node.a + i], text = members_[node.a + 1 - i];
        if (!is_limit(limit) || nodes_[limit].c < longest) continue;
        uint32_t most = ending_of(ending_of, text, 0).longest;
        if (most < FAR && nodes_[limit].c - longest >= most) return capped(text, longest, written, depth + 1);
      }
      return e;
    }
    case Kind::Entries:
    case Kind::Value:
      return written == Written::Forgotten ? without_said(e) : e;
    default:
      return e;
  }
}

std::optional<Exprs::Counted> Exprs::as_counted(ExprId e) const {
  const Node& node = nodes_[e];
  const Node& head = node.kind == Kind::Concat ? nodes_[node.a] : node;
  if (head.kind != Kind::Repeat) return std::nullopt;
  return Counted{head.a, node.kind == Kind::Concat ? node.b : EMPTY, head.b, head.c};
}

}  // namespace aici::regex
