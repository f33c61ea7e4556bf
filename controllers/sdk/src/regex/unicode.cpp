#include "unicode.hpp"

#include <algorithm>

#include "aici/text.hpp"

namespace aici::regex {
namespace {

#include "unicode_tables.inc"

constexpr uint32_t num_categories() { return CATEGORY_CODES.size() / 2; }

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> table) : table_(table) {}
  bool done() const { return at_ == table_.size(); }
  uint8_t byte() { return table_[at_++]; }
  uint32_t varint() {
    uint32_t value = 0;
    for (uint32_t shift = 0;; shift += 7) {
      uint8_t next = byte();
      value |= (next & 0x7Fu) << shift;
      if (next < 0x80) return value;
    }
  }

 private:
  std::span<const uint8_t> table_;
  size_t at_ = 0;
};

// A run is a byte, category * 8 + length - 1. If the length would be 8, a varint with the additional length follows.
// Two further "categories" are runs that alternate between Lu and Ll, starting with either.
CodePoints of_categories(uint32_t wanted) {
  CodePoints set;
  uint32_t at = 0;
  for (Reader table(CATEGORY_TABLE); !table.done();) {
    uint32_t head = table.byte(), category = head >> 3, length = (head & 7) + 1;
    if (length == 8) length += table.varint();
    if (category < num_categories()) {
      if (wanted >> category & 1) set.add(at, at + length - 1);
    } else {
      for (uint32_t i = 0; i < length; i++)
        if (wanted >> ((category - num_categories() + i) % 2) & 1) set.add(at + i, at + i);
    }
    at += length;
  }
  return set;
}

uint32_t category_bit(std::string_view code) { return 1u << CATEGORY_CODES.find(code) / 2; }

// A run is a byte, the number of the script, and a varint, the length. Code points without a script belong to the run
// before.
CodePoints of_script(uint32_t wanted) {
  CodePoints others;
  uint32_t at = 0;
  for (Reader table(SCRIPT_TABLE); !table.done();) {
    uint32_t script = table.byte(), length = table.varint();
    if (script != wanted) others.add(at, at + length - 1);
    at += length;
  }
  others.add(of_categories(category_bit("Cn") | category_bit("Co") | category_bit("Cs")));
  return others.negated();
}

uint32_t lower(char c) { return static_cast<uint8_t>(c >= 'A' && c <= 'Z' ? c + 32 : c); }
bool is_ignored(char c) { return c == ' ' || c == '_' || c == '-'; }

bool same_name(std::string_view x, std::string_view y) {
  for (;;) {
    while (!x.empty() && is_ignored(x.front())) x.remove_prefix(1);
    while (!y.empty() && is_ignored(y.front())) y.remove_prefix(1);
    if (x.empty() || y.empty()) return x.empty() && y.empty();
    if (lower(x.front()) != lower(y.front())) return false;
    x.remove_prefix(1), y.remove_prefix(1);
  }
}

// Long names of categories, each with its codes; a one-letter code stands for all codes that begin with the letter.
constexpr std::string_view CATEGORY_NAMES =
    "Letter=L Cased_Letter=LC Uppercase_Letter=Lu Lowercase_Letter=Ll Titlecase_Letter=Lt Modifier_Letter=Lm "
    "Other_Letter=Lo Mark=M Combining_Mark=M Nonspacing_Mark=Mn Spacing_Mark=Mc Enclosing_Mark=Me Number=N "
    "Decimal_Number=Nd Letter_Number=Nl Other_Number=No Punctuation=P Connector_Punctuation=Pc Dash_Punctuation=Pd "
    "Open_Punctuation=Ps Close_Punctuation=Pe Initial_Punctuation=Pi Final_Punctuation=Pf Other_Punctuation=Po Symbol=S "
    "Math_Symbol=Sm Currency_Symbol=Sc Modifier_Symbol=Sk Other_Symbol=So Separator=Z Space_Separator=Zs "
    "Line_Separator=Zl Paragraph_Separator=Zp Other=C Control=Cc Format=Cf Surrogate=Cs Private_Use=Co Unassigned=Cn";

// Call fits(number, long name, code) for each "long name=code" of a list until fits returns true.
template <typename Fits>
bool find_name(std::string_view list, Fits fits) {
  for (uint32_t number = 0; !list.empty(); number++) {
    std::string_view entry = list.substr(0, list.find(' '));
    list.remove_prefix(std::min(list.size(), entry.size() + 1));
    size_t middle = entry.find('=');
    if (fits(number, entry.substr(0, middle), entry.substr(middle + 1))) return true;
  }
  return false;
}

std::optional<CodePoints> category(std::string_view name) {
  std::string_view code;
  find_name(CATEGORY_NAMES, [&](uint32_t, std::string_view full, std::string_view short_name) {
    bool found = same_name(name, full) || same_name(name, short_name);
    return found ? code = short_name, true : false;
  });
  if (code.empty()) return std::nullopt;
  if (code == "LC") return of_categories(category_bit("Lu") | category_bit("Ll") | category_bit("Lt"));
  uint32_t wanted = 0;
  for (uint32_t number = 0; number < num_categories(); number++)
    if (CATEGORY_CODES.substr(2 * number, code.size()) == code) wanted |= 1u << number;
  return of_categories(wanted);
}

std::optional<CodePoints> script(std::string_view name) {
  uint32_t wanted = UINT32_MAX;
  find_name(SCRIPT_NAMES, [&](uint32_t number, std::string_view full, std::string_view code) {
    bool found = same_name(name, full) || same_name(name, code);
    return found ? wanted = number, true : false;
  });
  if (wanted == UINT32_MAX) return std::nullopt;
  return of_script(wanted);
}

// A run is a byte, whose bits are the properties in the order of their names, and a varint, the length.
std::optional<CodePoints> emoji(std::string_view name) {
  uint32_t wanted = UINT32_MAX;
  find_name(EMOJI_NAMES, [&](uint32_t number, std::string_view full, std::string_view code) {
    bool found = same_name(name, full) || same_name(name, code);
    return found ? wanted = number, true : false;
  });
  if (wanted == UINT32_MAX) return std::nullopt;
  CodePoints set;
  uint32_t at = 0;
  for (Reader table(EMOJI_TABLE); !table.done();) {
    uint32_t properties = table.byte(), length = table.varint();
    if (properties >> wanted & 1) set.add(at, at + length - 1);
    at += length;
  }
  return set;
}

// The code points first, first + stride, ...
struct Run {
  uint32_t first, stride, steps;
};

// For the code points of the run in `known`, add the code points that lie `by` further (modulo 2^32).
void add_moved(Run run, const CodePoints& known, uint32_t by, CodePoints& to) {
  uint32_t run_last = run.first + run.steps * run.stride;
  auto range = std::ranges::lower_bound(known.ranges(), run.first, {}, &CodePointRange::last);
  for (; range != known.ranges().end() && range->first <= run_last; range++) {
    uint32_t skipped = range->first > run.first ? (range->first - run.first + run.stride - 1) / run.stride : 0;
    uint32_t first = run.first + skipped * run.stride, last = std::min(run_last, range->last);
    if (first > last) continue;
    if (run.stride == 1) {
      to.add(first + by, last + by);
    } else {
      for (uint32_t c = first; c <= last; c += run.stride) to.add(c + by, c + by);
    }
  }
}

}  // namespace

std::optional<CodePoints> unicode_property(std::string_view name) {
  if (size_t equals = name.find('='); equals != name.npos) {
    std::string_view property = name.substr(0, equals), value = name.substr(equals + 1);
    if (same_name(property, "General_Category") || same_name(property, "gc")) return category(value);
    if (same_name(property, "Script") || same_name(property, "sc")) return script(value);
    return std::nullopt;
  }
  CodePoints set;
  if (same_name(name, "Any")) return set.add(0, MAX_CODE_POINT), set;
  if (same_name(name, "ASCII")) return set.add(0, 0x7F), set;
  if (same_name(name, "Assigned")) return of_categories(category_bit("Cn")).negated();
  if (name == "Print" || name == "Graph") return set.add(name == "Print" ? ' ' : '!', '~'), set;  // of POSIX and Java
  if (same_name(name, "digit")) return category("Nd");
  for (auto find : {category, script, emoji})
    if (std::optional<CodePoints> found = find(name)) return found;
  return std::nullopt;
}

// A run is varints: the distance of its first code point from the first of the run before, twice the count less one
// plus the stride less one, and the distance from each code point to its other case. All cases of a letter refer to the
// first case, so the second pass reaches every case.
CodePoints unicode_either_case(const CodePoints& set) {
  CodePoints cases = set;
  for (int pass = 0; pass < 2; pass++) {
    CodePoints known = cases.sorted();
    uint32_t first = 0;
    for (Reader table(CASE_TABLE); !table.done();) {
      first += table.varint();
      uint32_t shape = table.varint(), other = table.varint();
      Run run{first, (shape & 1) + 1, shape >> 1};
      add_moved(run, known, other, cases);
      add_moved({first + other, run.stride, run.steps}, known, 0 - other, cases);
    }
  }
  return cases;
}

}  // namespace aici::regex
