// Sorting in little code: a use of std::sort costs 5 KB of Wasm, a use of this function a tenth.
#pragma once
#include <algorithm>
#include <vector>

namespace aici {

template <typename T, typename Less>
void sort(std::vector<T>& items, Less less) {
  constexpr size_t FEW = 16;
  if (items.size() > FEW) {
    std::make_heap(items.begin(), items.end(), less);
    return std::sort_heap(items.begin(), items.end(), less);
  }
  for (size_t i = 1; i < items.size(); i++) {
    T item = items[i];
    size_t at = i;
    for (; at > 0 && less(item, items[at - 1]); at--) items[at] = items[at - 1];
    items[at] = item;
  }
}

}  // namespace aici
