// Strongly connected components of a graph.
#pragma once
#include <cstdint>
#include <vector>

namespace aici::grammar {

// The components, each after all components that it refers to. `edges`: (nodes,) the nodes that each node refers to.
// With `roots`, only components that can be reached from the roots.
std::vector<std::vector<uint32_t>> components(const std::vector<std::vector<uint32_t>>& edges, const std::vector<uint32_t>& roots = {});

}  // namespace aici::grammar
