// Run a fuzz target without a fuzzer: the given files, and mutations that are the same each time. Usage: replay
// NUM_CHANGES FILE...
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

std::string read(const char* path) {
  std::string content;
  FILE* file = fopen(path, "rb");
  if (!file) {
    fprintf(stderr, "cannot read %s\n", path);
    exit(2);
  }
  char block[4096];
  for (size_t n; (n = fread(block, 1, sizeof(block), file)) > 0;) content.append(block, n);
  fclose(file);
  return content;
}

struct Random {
  uint64_t state = 0x9E3779B97F4A7C15;
  uint32_t below(size_t bound) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return bound ? static_cast<uint32_t>((state >> 32) % bound) : 0;
  }
};

std::string changed(std::string input, const std::vector<std::string>& seeds, Random& random) {
  for (uint32_t n = 1 + random.below(4); n > 0; n--) {
    const std::string& other = seeds[random.below(seeds.size())];
    size_t at = random.below(input.size() + 1), from = random.below(other.size() + 1), len = random.below(12);
    switch (random.below(4)) {
      case 0:
        input.insert(at, other, from, len);
        break;
      case 1:
        input.erase(at, len);
        break;
      case 2:
        if (at < input.size()) input[at] = static_cast<char>(random.below(256));
        break;
      default:
        input.insert(at, 1, "()[]{}|*+?\\\"^$&~,:;0a\n"[random.below(22)]);
    }
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  std::vector<std::string> seeds;
  for (int i = 2; i < argc; i++) seeds.push_back(read(argv[i]));
  for (const std::string& seed : seeds) run(seed);
  Random random;
  for (int left = atoi(argv[1]); left > 0; left--) run(changed(seeds[random.below(seeds.size())], seeds, random));
  printf("%zu inputs and %s changes of them\n", seeds.size(), argv[1]);
}
