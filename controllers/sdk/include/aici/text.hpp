// A growing byte string in place of std::string, which would link libc++.
#pragma once
#include <concepts>
#include <string_view>
#include <vector>

namespace aici {

class Text {
 public:
  Text() = default;
  explicit Text(std::string_view text) { *this << text; }

  Text& operator<<(std::string_view text) {
    bytes_.insert(bytes_.end(), text.begin(), text.end());
    return *this;
  }
  Text& operator<<(char c) {
    bytes_.push_back(c);
    return *this;
  }
  template <std::unsigned_integral T>
  Text& operator<<(T value) {
    char digits[20];
    int n = 0;
    do digits[n++] = static_cast<char>('0' + value % 10);
    while (value /= 10);
    while (n > 0) bytes_.push_back(digits[--n]);
    return *this;
  }
  template <std::signed_integral T>
    requires(!std::same_as<T, char>)
  Text& operator<<(T value) {
    if (value < 0) *this << '-';
    unsigned long long magnitude = static_cast<unsigned long long>(value);
    return *this << (value < 0 ? 0 - magnitude : magnitude);
  }

  bool empty() const { return bytes_.empty(); }
  size_t size() const { return bytes_.size(); }
  void clear() { bytes_.clear(); }
  std::string_view view() const { return {bytes_.data(), bytes_.size()}; }
  operator std::string_view() const { return view(); }

 private:
  std::vector<char> bytes_;
};

}  // namespace aici
