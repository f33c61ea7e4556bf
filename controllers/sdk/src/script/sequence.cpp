#include "aici/script/sequence.hpp"

namespace aici::script {

bool Sequence::await(Step step) {
  if (is_waiting()) return false;
  step_ = static_cast<Step&&>(step);
  return true;
}

void Sequence::log(int level, std::string_view line) const {
  if (level <= log_level) print((Text(line) << '\n').view());
}

}  // namespace aici::script
