// The order of all suffixes of a sequence, in linear time even for repetitive sequences.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace aici {

// The starts of the suffixes of `values`, sorted; a prefix sorts first. All values are below `num_values`, which should
// not be much greater than the number of values.
std::vector<uint32_t> suffix_array(std::span<const uint32_t> values, uint32_t num_values);

}  // namespace aici
