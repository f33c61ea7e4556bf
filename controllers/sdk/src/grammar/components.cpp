#include "components.hpp"

#include <algorithm>

namespace aici::grammar {

// Tarjan's algorithm, without recursion: a chain of rules can be longer than the native stack.
std::vector<std::vector<uint32_t>> components(const std::vector<std::vector<uint32_t>>& edges, const std::vector<uint32_t>& roots) {
  struct Step {
    uint32_t node;
    size_t next_edge;
  };
  std::vector<std::vector<uint32_t>> out;
  std::vector<uint32_t> number(edges.size()), low(edges.size()), open;  // numbers from 1; 0: not seen
  std::vector<bool> is_open(edges.size());
  std::vector<Step> path;
  uint32_t count = 0;
  auto enter = [&](uint32_t node) {
    number[node] = low[node] = ++count;
    open.push_back(node), is_open[node] = true;
    path.push_back({node, 0});
  };
  auto visit = [&](uint32_t root) {
    if (number[root]) return;
    for (enter(root); !path.empty();) {
      Step& step = path.back();
      uint32_t node = step.node;
      if (step.next_edge < edges[node].size()) {
        uint32_t to = edges[node][step.next_edge++];
        if (!number[to]) enter(to);
        else if (is_open[to]) low[node] = std::min(low[node], number[to]);
        continue;
      }
      path.pop_back();
      if (!path.empty()) low[path.back().node] = std::min(low[path.back().node], low[node]);
      if (low[node] != number[node]) continue;
      std::vector<uint32_t> component;
      for (uint32_t last = UINT32_MAX; last != node;) {
        last = open.back();
        open.pop_back(), is_open[last] = false;
        component.push_back(last);
      }
      out.push_back(static_cast<std::vector<uint32_t>&&>(component));
    }
  };
  for (uint32_t root : roots) visit(root);
  for (uint32_t root = 0; roots.empty() && root < edges.size(); root++) visit(root);
  return out;
}

}  // namespace aici::grammar
