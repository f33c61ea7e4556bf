#include <algorithm>

#include "aici/schema/strings.hpp"

// Formats as regular expressions. Each expression allows the language of the standard named by the JSON Schema
// specification, or less: the part accepted by every reader. So a date has no year 0, a time no leap second and capital
// T and Z, a mail address no quotes and comments.
namespace aici::schema {
namespace {

#define DAY                                                                                                   \
  "(?:(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-"                                               \
  "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|" \
  "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)"
#define TIME "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOST "(?:" LABEL "\\.){0,30}" LABEL
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,64}"
#define BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4 BYTE "(?:\\." BYTE "){3}"
#define H16 "[0-9A-Fa-f]{1,4}"
#define LS32 "(?:" H16 ":" H16 "|" IPV4 ")"
// The part before the last 32 bits, which are written once: the patterns below repeat the part.
#define IPV6                                                                                                    \
  "(?:(?:(?:" H16 ":){6}|::(?:" H16 ":){5}|(?:" H16 ")?::(?:" H16 ":){4}|(?:(?:" H16 ":){0,1}" H16              \
  ")?::(?:" H16 ":){3}|(?:(?:" H16 ":){0,2}" H16 ")?::(?:" H16 ":){2}|(?:(?:" H16 ":){0,3}" H16 ")?::" H16      \
  ":|(?:(?:" H16 ":){0,4}" H16 ")?::)" LS32 "|(?:(?:" H16 ":){0,5}" H16 ")?::" H16 "|(?:(?:" H16 ":){0,6}" H16 ")?::)"
// RFC 3986; letters beyond ASCII as in RFC 3987.
#define UCS "\\u{A0}-\\u{D7FF}\\u{F900}-\\u{FDCF}\\u{FDF0}-\\u{FFEF}\\u{10000}-\\u{EFFFD}"
#define PCHAR(more) "(?:[A-Za-z0-9._~!$&'()*+,;=:@" more "-]|%[0-9A-Fa-f]{2})"
#define AUTHORITY(more)                                                                                     \
  "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:" more "-]|%[0-9A-Fa-f]{2})*@)?"                                          \
  "(?:\\[" IPV6 "\\]|(?:[A-Za-z0-9._~!$&'()*+,;=" more "-]|%[0-9A-Fa-f]{2})*)(?::[0-9]*)?"
#define TAIL(more) "(?:\\?(?:" PCHAR(more) "|[/?])*)?(?:#(?:" PCHAR(more) "|[/?])*)?"
#define SEGMENTS(more) "(?:/" PCHAR(more) "*)*"
#define ABSOLUTE(more)                                                                                                 \
  "[A-Za-z][A-Za-z0-9+.-]*:(?://" AUTHORITY(more) SEGMENTS(more) "|/?(?:" PCHAR(more) "+" SEGMENTS(more) ")?)" TAIL(more)
#define RELATIVE(more)                                                                                                  \
  "(?://" AUTHORITY(more) SEGMENTS(more) "|/(?:" PCHAR(more) "+" SEGMENTS(more) ")?|"                                   \
  "(?:(?:[A-Za-z0-9._~!$&'()*+,;=@" more "-]|%[0-9A-Fa-f]{2})+" SEGMENTS(more) ")?)" TAIL(more)
#define POINTER "(?:/(?:[^~/]|~[01])*)*"

struct Format {
  std::string_view name, pattern;
};

constexpr Format FORMATS[] = {
    {"date", DAY},
    {"time", TIME},
    {"date-time", DAY "T" TIME},
    {"duration",
     "P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
     "(?:T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))?|"
     "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))"},
    {"email", ATOM "(?:\\." ATOM "){0,8}@" HOST},
    {"hostname", HOST},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uuid", "[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"},
    {"uri", ABSOLUTE("")},
    {"uri-reference", "(?:" ABSOLUTE("") "|" RELATIVE("") ")"},
    {"iri", ABSOLUTE(UCS)},
    {"iri-reference", "(?:" ABSOLUTE(UCS) "|" RELATIVE(UCS) ")"},
    {"json-pointer", POINTER},
    {"relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|" POINTER ")"},
};

}  // namespace

std::string_view format_pattern(std::string_view format) {
  auto known = std::ranges::find(FORMATS, format, &Format::name);
  return known == std::end(FORMATS) ? std::string_view() : known->pattern;
}

}  // namespace aici::schema
