#include "aici/schema/formats.hpp"

#include <algorithm>

#include "aici/regex/parser.hpp"

// Each expression allows the language of the format's standard, or less: the part that every reader accepts.
namespace aici::schema {
namespace {

using regex::ExprId;
using regex::UNBOUNDED;
using Whole = Numbers::Whole;

// Time (RFC 3339). No year 0 and no leap second.
#define DAY                                                                                                   \
  "(?:(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-"                                               \
  "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|" \
  "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)"
#define CLOCK "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?"
#define TIME CLOCK "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
// As many digits as Python's timedelta and pydantic can hold.
#define TIME_SPAN "T(?:[0-9]{1,6}H(?:[0-9]{1,7}M(?:[0-9]{1,7}S)?)?|[0-9]{1,7}M(?:[0-9]{1,7}S)?|[0-9]{1,9}S)"
#define DAY_SPAN                                                                     \
  "(?:[0-9]{1,6}Y(?:[0-9]{1,7}M(?:[0-9]{1,8}D)?)?|[0-9]{1,7}M(?:[0-9]{1,8}D)?|[0-9]{1,8}D)"
#define DURATION "P(?:[0-9]{1,8}W|" DAY_SPAN "(?:" TIME_SPAN ")?|" TIME_SPAN ")"

// Hosts (RFC 1123).
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOST "(?:" LABEL "\\.)*" LABEL
// Letters beyond ASCII that every version of IDNA allows everywhere in a label: written from left to right, and from
// right to left.
#define LTR                                                                                                 \
  "\\u{DF}-\\u{F6}\\u{F8}-\\u{FF}āăąćĉċčďđēĕėęěĝğġģĥħĩīĭįıĵķļľłńņňŋōŏőœŕŗřśŝşšţťŧũūŭůűųŵŷźżžșț"               \
  "\\u{3AC}-\\u{3CE}\\u{430}-\\u{45F}\\u{905}-\\u{928}\\u{E01}-\\u{E30}\\u{3041}-\\u{3096}\\u{30A1}-\\u{30FA}" \
  "\\u{F0B}\\u{3007}\\u{4E00}-\\u{9FA5}\\u{AC00}-\\u{D7A3}"
#define RTL "\\u{5D0}-\\u{5EA}\\u{621}-\\u{63A}\\u{641}-\\u{64A}"
// Labels whose letters depend on their neighbours (RFC 5892, appendix A): a dot between two l; a Greek numeral sign; Hebrew
// punctuation; a dot between Japanese letters; digits of Arabic; joiners behind a virama and between Arabic letters.
#define GREEK "\\u{3AC}-\\u{3CE}"
#define HEBREW "\\u{5D0}-\\u{5EA}"
#define ARABIC "\\u{621}-\\u{63A}\\u{641}-\\u{64A}"
#define JAPANESE "[\\u{3041}-\\u{3096}\\u{30A1}-\\u{30FA}\\u{4E00}-\\u{9FA5}]{1,4}"
#define DEVANAGARI "[\\u{915}-\\u{928}\\u{92A}-\\u{930}\\u{932}\\u{933}\\u{935}-\\u{939}]{1,3}"
#define CONTEXT_LABEL                                                                                        \
  "(?:[a-z0-9]{0,8}l\\u{B7}l[a-z0-9]{0,8}|[" GREEK "]{0,4}\\u{375}[" GREEK "]{1,4}|[" HEBREW "]{1,4}[\\u{5F3}\\u{5F4}][" HEBREW "]{0,4}|" \
  "\\u{30FB}?" JAPANESE "(?:\\u{30FB}" JAPANESE ")?\\u{30FB}?|[" ARABIC "]{1,4}[\\u{660}-\\u{669}]{1,3}[" ARABIC "]{0,3}|" \
  "[\\u{6F0}-\\u{6F9}][0-9\\u{6F0}-\\u{6F9}]{0,7}|[\\u{6FD}\\u{6FE}" ARABIC "]{1,8}|" DEVANAGARI "\\u{94D}[\\u{200C}\\u{200D}]" DEVANAGARI "|" \
  "[" ARABIC "]{0,3}[\\u{628}\\u{62A}-\\u{62E}\\u{633}-\\u{63A}\\u{641}-\\u{647}\\u{649}\\u{64A}]\\u{200C}[\\u{622}-\\u{63A}\\u{641}-\\u{64A}]{1,4})"
// Labels without two hyphens in a row. A label beyond ASCII stays within 63 bytes as Punycode, where a letter takes 5
// bytes at most; a host stays within 253 bytes.
#define WORDS(count) "(?:[A-Za-z0-9]-?){0," count "}[A-Za-z0-9]"
#define SHORT_LABEL WORDS("9")
#define LONG_LABEL "(?:[A-Za-z0-9]{1,63}|" WORDS("30") ")"
#define LETTERS(more) "(?:[a-z0-9" more "](?:-?[a-z0-9" more "]){0,4}|[a-z0-9" more "]{1,11})"
#define IDN_LABEL                                                                                             \
  "(?:" LETTERS(LTR) "|[" RTL "]{1,11}|(?:[a-z0-9]-?){0,9}[" LTR "](?:-?[a-z0-9]){0,9}(?:-?[" LTR "](?:-?[a-z0-9]){0,4})?|" CONTEXT_LABEL ")"
#define DOT "[.\\u{3002}\\u{FF0E}\\u{FF61}]"  // RFC 3490
#define IDN_HOST                                                                                              \
  "(?:(?:" LONG_LABEL DOT "){0,2}" LONG_LABEL "|(?:" SHORT_LABEL DOT "){0,10}" SHORT_LABEL "|"             \
  "(?:" SHORT_LABEL DOT "){0,3}" IDN_LABEL "(?:" DOT IDN_LABEL ")?(?:" DOT SHORT_LABEL "){0,2})"

// Mail (RFC 5321), without quotes and comments. The host has a dot, and its last label letters.
#define ATOM(more, count) "[A-Za-z0-9!#$%&'*+/=?^_`{|}~" more "-]" count
#define MAILBOX ATOM("", "+") "(?:\\." ATOM("", "+") ")*"
#define SHORT_MAILBOX(more) ATOM(more, "{1,20}") "(?:\\." ATOM(more, "{1,20}") "){0,2}"
#define TOP "(?:[A-Za-z]{2,63}|[Xx][Nn]--[A-Za-z0-9-]{0,58}[A-Za-z0-9])"
#define MAIL_HOST "(?:" LABEL "\\.)+" TOP
#define IDN_MAIL_HOST "(?:(?:" SHORT_LABEL "|" IDN_LABEL ")\\.){1,3}(?:[A-Za-z]{2,20}|[" LTR "]{2,11}|[" RTL "]{2,11})"
#define SHORT_MAIL SHORT_MAILBOX("") "@(?:" SHORT_LABEL "\\.){1,6}[A-Za-z]{2,20}"

// Addresses (RFC 4291, RFC 3986).
#define BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4 BYTE "(?:\\." BYTE "){3}"
#define H16 "[0-9A-Fa-f]{1,4}"
#define LS32 "(?:" H16 ":" H16 "|" IPV4 ")"
// The part before the last 32 bits, which are written once: the patterns below repeat the part.
#define IPV6                                                                                                    \
  "(?:(?:(?:" H16 ":){6}|::(?:" H16 ":){5}|(?:" H16 ")?::(?:" H16 ":){4}|(?:(?:" H16 ":){0,1}" H16              \
  ")?::(?:" H16 ":){3}|(?:(?:" H16 ":){0,2}" H16 ")?::(?:" H16 ":){2}|(?:(?:" H16 ":){0,3}" H16 ")?::" H16      \
  ":|(?:(?:" H16 ":){0,4}" H16 ")?::)" LS32 "|(?:(?:" H16 ":){0,5}" H16 ")?::" H16 "|(?:(?:" H16 ":){0,6}" H16 ")?::)"
#define TO_32 "(?:[12]?[0-9]|3[0-2])"
#define TO_128 "(?:[1-9]?[0-9]|1[01][0-9]|12[0-8])"
#define MAC(separator) "[0-9A-Fa-f]{2}(?:" separator "[0-9A-Fa-f]{2}){5}"

// Networks: no bit of the host is set. TOP_n: a byte whose last 8 - n bits are 0.
#define TOP_3 "(?:0|32|64|96|128|160|192|224)"
#define TOP_4 "(?:0|16|32|48|64|80|96|112|128|144|160|176|192|208|224|240)"
#define TOP_5 "(?:[08]|16|24|32|40|48|56|64|72|80|88|96|1(?:04|12|20|28|36|44|52|60|68|76|84|92)|2(?:00|08|16|24|32|40|48))"
#define TOP_6 "(?:[048]|[2468][048]|[13579][26]|1(?:[02468][048]|[13579][26])|2(?:[024][048]|[13][26]|52))"
#define TOP_7 "(?:[02468]|[1-9][02468]|1[0-9][02468]|2[0-4][02468]|25[024])"
#define LAST_BYTE(zeros, n1, n2, n3, n4, n5, n6, n7, n8)                                                                      \
  "(?:(?:0|128)" zeros "/" n1 "|(?:0|64|128|192)" zeros "/" n2 "|" TOP_3 zeros "/" n3 "|" TOP_4 zeros "/" n4 "|" TOP_5 zeros "/" n5 \
  "|" TOP_6 zeros "/" n6 "|" TOP_7 zeros "/" n7 "|" BYTE zeros "/" n8 ")"
#define IPV4_NETWORK                                                                                             \
  "(?:0\\.0\\.0\\.0/0|" LAST_BYTE("\\.0\\.0\\.0", "1", "2", "3", "4", "5", "6", "7", "8") "|" BYTE "\\.(?:"      \
  LAST_BYTE("\\.0\\.0", "9", "10", "11", "12", "13", "14", "15", "16") "|" BYTE "\\.(?:"                         \
  LAST_BYTE("\\.0", "17", "18", "19", "20", "21", "22", "23", "24") "|" BYTE "\\."                               \
  LAST_BYTE("", "25", "26", "27", "28", "29", "30", "31", "32") ")))"
// As many groups as the prefix has at most, then `::`; or an address with /128.
#define UP_TO_128 "1[01][0-9]|12[0-8]"
#define IPV6_NETWORK                                                                                             \
  "(?:::/" TO_128 "|" H16 "::/(?:1[6-9]|[2-9][0-9]|" UP_TO_128 ")|" H16 ":" H16 "::/(?:3[2-9]|[4-9][0-9]|" UP_TO_128   \
  ")|(?:" H16 ":){3}:/(?:4[89]|[5-9][0-9]|" UP_TO_128 ")|(?:" H16 ":){4}:/(?:6[4-9]|[7-9][0-9]|" UP_TO_128             \
  ")|(?:" H16 ":){5}:/(?:[89][0-9]|" UP_TO_128 ")|(?:" H16 ":){6}:/(?:9[6-9]|" UP_TO_128                             \
  ")|(?:" H16 ":){7}:/(?:11[2-9]|12[0-8])|" IPV6 "/128)"

// RFC 3986; letters beyond ASCII as in RFC 3987. A name of a host has neither %XX nor sub-delimiters and does not end in
// a number, and a port is a 16-bit number: the parsers of the web refuse anything else.
#define UCS "\\u{A0}-\\u{D7FF}\\u{F900}-\\u{FDCF}\\u{FDF0}-\\u{FFEF}\\u{10000}-\\u{EFFFD}"
#define PERCENT "%[0-9A-Fa-f]{2}"
#define PCHAR(more) "(?:[A-Za-z0-9._~!$&'()*+,;=:@" more "-]|" PERCENT ")"
#define USER(more) "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:" more "-]|" PERCENT ")*@)?"
#define URI_HOST(more)                                                                                        \
  "(?:\\[" IPV6 "\\]|" IPV4 "|(?:[A-Za-z0-9_" more "-]+\\.)*[A-Za-z_" more "][A-Za-z0-9_" more "-]*\\.?)"
#define PORT "(?::(?:[0-9]{1,4}|[1-5][0-9]{4}|6(?:[0-4][0-9]{3}|5(?:[0-4][0-9]{2}|5(?:[0-2][0-9]|3[0-5]))))?)?"
#define AUTHORITY(more) "(?:" USER(more) URI_HOST(more) PORT ")?"
#define QUERY(more) "(?:\\?(?:" PCHAR(more) "|[/?])*)?"
#define TAIL(more) QUERY(more) "(?:#(?:" PCHAR(more) "|[/?])*)?"
#define SEGMENTS(more) "(?:/" PCHAR(more) "*)*"
#define SCHEME "[A-Za-z][A-Za-z0-9+.-]*:"
#define ABSOLUTE(more)                                                                                                 \
  SCHEME "(?://" AUTHORITY(more) SEGMENTS(more) "|/?" PCHAR(more) "+" SEGMENTS(more) "|/)" TAIL(more)
#define RELATIVE(more)                                                                                                  \
  "(?://" AUTHORITY(more) SEGMENTS(more) "|/(?:" PCHAR(more) "+" SEGMENTS(more) ")?|"                                   \
  "(?:(?:[A-Za-z0-9._~!$&'()*+,;=@" more "-]|" PERCENT ")+" SEGMENTS(more) ")?)" TAIL(more)
// What the web refuses: these schemes without a host (RFC 9110, RFC 6455), and a file on a host with a user or a port.
#define NO_URL                                                     \
  "(?:(?i:https?|wss?|ftp):(?:/?(?:[^/](?s:.)*)?|//(?:[/?#](?s:.)*)?)|" \
  "(?i:file)://(?:[^/?#\\[]*[@:]|\\[[^/?#]*\\]:)(?s:.)*)"
#define HOSTS USER("") URI_HOST("") PORT "(?:," USER("") URI_HOST("") PORT ")*"
#define POINTER "(?:/(?:[^~/]|~[01])*)*"

// RFC 6570.
#define VARIABLE "(?:[A-Za-z0-9_]|" PERCENT ")(?:\\.?(?:[A-Za-z0-9_]|" PERCENT "))*(?::[1-9][0-9]{0,3}|\\*)?"
#define TEMPLATE                                                                                                       \
  "(?:[!#$&()*+,./0-9:;=?@A-Z\\[\\]_a-z~" UCS "-]|" PERCENT "|\\{[+#./;?&]?" VARIABLE "(?:," VARIABLE ")*\\})*"

// RFC 4648: unused bits of the last character are 0.
#define URL64 "[A-Za-z0-9_-]"
#define BASE64(character, two, one) \
  "(?:" character "{4})*(?:" character "[AQgw]" two "|" character "{2}[AEIMQUYcgkosw048]" one ")?"
// Base64 of a text that begins with {" and ends with }.
#define JWT_OBJECT "eyJ" URL64 "(?:" URL64 "{4})*(?:" URL64 "{2}[BFJNRVZdhlptx159]9|fQ|" URL64 "[HXn3]0)"

#define UUID(version, variant) "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-" version "[0-9A-Fa-f]{3}-" variant "[0-9A-Fa-f]{3}-[0-9A-Fa-f]{12}"
#define RFC_UUID(version) UUID(version, "[89ABab]")

#define NATURAL "(?:0|[1-9][0-9]*)"
#define PRE_RELEASE "(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][A-Za-z0-9-]*)"

// Regular expressions that ECMA-262 and Python's `re` both read, with groups up to three deep. Two digits in order, as
// in [2-5] and {2,5}.
#define ORDERED(between)                                                                                            \
  "0" between "[0-9]|1" between "[1-9]|2" between "[2-9]|3" between "[3-9]|4" between "[4-9]|5" between "[5-9]|6"   \
  between "[6-9]|7" between "[7-9]|8" between "[89]|9" between "9"
#define HEX_ESCAPE "x[0-9A-Fa-f]{2}|u(?:[0-9A-CE-Fa-ce-f][0-9A-Fa-f]{3}|[Dd][0-7][0-9A-Fa-f]{2})"
#define ESCAPE(more) "\\\\(?:[dDwWsSnrtfv\\^$\\\\.*+?()\\[\\]{}|/" more "]|" HEX_ESCAPE ")"
#define RANGES ORDERED("-") "|a-[a-z]|[b-z]-z|A-[A-Z]|[B-Z]-Z"
#define CLASS "\\[\\^?(?:" RANGES "|[^\\\\\\[\\]^&~|\\x00-\\x1F-]|" ESCAPE("-") ")+\\]"
#define CHARACTER "(?:[^\\\\^$*+?()\\[\\]{}|\\x00-\\x1F]|" ESCAPE("") "|" CLASS ")"
#define COUNT "(?:(?:[*+?]|\\{(?:[0-9]{1,3},?|" ORDERED(",") "|[0-9],[1-9][0-9]{1,2}|[1-9][0-9],[1-9][0-9]{2})\\})\\?" "?)?"
#define REGEX(group) "(?:" CHARACTER COUNT "|[\\^$|]|\\\\[bB]" group ")*"
#define IN_GROUP(inner) "|\\((?:\\?:)?" inner "\\)" COUNT
#define REGEX_3 REGEX(IN_GROUP(REGEX(IN_GROUP(REGEX(IN_GROUP(REGEX("")))))))

constexpr std::string_view ANY_STRING = "(?s:.*)", PATH = "[^\\x00]+";

constexpr StringFormat STRING_FORMATS[] = {
    // Time.
    {"date", DAY},
    {"time", TIME},
    {"date-time", DAY "[Tt]" TIME},
    {"time-local", CLOCK},
    {"partial-time", CLOCK},
    {"date-time-local", DAY "[Tt]" CLOCK},
    {"partial-date-time", DAY "[Tt]" CLOCK},
    {"duration", DURATION},

    // Hosts and mail.
    {"hostname", HOST, 253},
    {"idn-hostname", IDN_HOST},
    {"email", "@" MAIL_HOST, 254, {}, MAILBOX, 64},
    {"idn-email", SHORT_MAILBOX(LTR RTL) "@" IDN_MAIL_HOST},
    {"name-email", "(?:[A-Za-z][A-Za-z0-9]*(?: [A-Za-z0-9]+)* <" SHORT_MAIL ">|" SHORT_MAIL ")"},

    // Networks.
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"ip", "(?:" IPV4 "|" IPV6 ")"},
    {"ipvanyaddress", "(?:" IPV4 "|" IPV6 ")"},
    {"cidrv4", IPV4 "/" TO_32},
    {"cidrv6", "(?:" IPV6 ")/" TO_128},
    {"ipv4interface", IPV4 "/" TO_32},
    {"ipv6interface", "(?:" IPV6 ")/" TO_128},
    {"ipvanyinterface", "(?:" IPV4 "/" TO_32 "|(?:" IPV6 ")/" TO_128 ")"},
    {"ipv4network", IPV4_NETWORK},
    {"ipv6network", IPV6_NETWORK},
    {"ipvanynetwork", "(?:" IPV4_NETWORK "|" IPV6_NETWORK ")"},
    {"mac", "(?:" MAC(":") "|" MAC("-") ")"},
    {"mac-address", "(?:" MAC(":") "|" MAC("-") ")"},
    {"e164", "\\+[1-9][0-9]{6,14}"},

    // Resources.
    {"uri", ABSOLUTE(""), UNBOUNDED, NO_URL},
    {"uri-reference", "(?:" ABSOLUTE("") "|" RELATIVE("") ")", UNBOUNDED, NO_URL},
    {"iri", ABSOLUTE(UCS), UNBOUNDED, NO_URL},
    {"iri-reference", "(?:" ABSOLUTE(UCS) "|" RELATIVE(UCS) ")", UNBOUNDED, NO_URL},
    {"uri-template", TEMPLATE},
    {"multi-host-uri", SCHEME "//" HOSTS SEGMENTS("") QUERY("")},
    {"json-pointer", POINTER},
    {"relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|" POINTER ")"},
    {"path", PATH},
    {"file-path", PATH},
    {"directory-path", PATH},

    // Names.
    {"uuid", UUID("[0-9A-Fa-f]", "[0-9A-Fa-f]")},
    {"guid", UUID("[0-9A-Fa-f]", "[0-9A-Fa-f]")},
    {"uuid1", RFC_UUID("1")},
    {"uuid2", RFC_UUID("2")},
    {"uuid3", RFC_UUID("3")},
    {"uuid4", RFC_UUID("4")},
    {"uuid5", RFC_UUID("5")},
    {"uuid6", RFC_UUID("6")},
    {"uuid7", RFC_UUID("7")},
    {"uuid8", RFC_UUID("8")},
    {"cuid", "c[0-9a-z]{24}"},
    {"cuid2", "[a-z][0-9a-z]{1,31}"},
    {"ulid", "[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}"},
    {"nanoid", "[A-Za-z0-9_-]{21}"},
    {"xid", "[0-9a-v]{19}[0g]"},
    {"ksuid", "[0-9A-Z][0-9A-Za-z]{26}"},
    {"semver", NATURAL "\\." NATURAL "\\." NATURAL "(?:-" PRE_RELEASE "(?:\\." PRE_RELEASE ")*)?(?:\\+[A-Za-z0-9-]+(?:\\.[A-Za-z0-9-]+)*)?"},

    // Encodings.
    {"base64", BASE64("[A-Za-z0-9+/]", "==", "=")},
    {"byte", BASE64("[A-Za-z0-9+/]", "==", "=")},
    {"base64url", BASE64(URL64, "(?:==)?", "=?")},
    {"jwt", JWT_OBJECT "\\.(?:" JWT_OBJECT "|e30)\\." BASE64(URL64, "", "")},
    {"regex", REGEX_3},
    {"char", "(?s:.)"},
    {"binary", ANY_STRING},
    {"password", ANY_STRING},
};

constexpr NumberFormat NUMBER_FORMATS[] = {
    {"int8", Whole::Only, "-128", "127"},
    {"int16", Whole::Only, "-32768", "32767"},
    {"int32", Whole::Only, "-2147483648", "2147483647"},
    {"int64", Whole::Only, "-9223372036854775808", "9223372036854775807"},
    {"uint", Whole::Only, "0", ""},
    {"uint8", Whole::Only, "0", "255"},
    {"uint16", Whole::Only, "0", "65535"},
    {"uint32", Whole::Only, "0", "4294967295"},
    {"uint64", Whole::Only, "0", "18446744073709551615"},
    {"double-int", Whole::Only, "-9007199254740991", "9007199254740991"},
    {"float", Whole::Either, "-340282346638528859811704183484516925440", "340282346638528859811704183484516925440"},
    {"double", Whole::Either, "", ""},  // no number is generated that a double cannot hold
    {"decimal", Whole::Either, "", ""},
    {"time-delta", Whole::Either, "", ""},
};

std::optional<Bound> bound(std::string_view text) {
  if (text.empty()) return std::nullopt;
  return Bound{*Decimal::from_json(text)};
}

template <typename Format, size_t N>
const Format* find(const Format (&formats)[N], std::string_view name) {
  auto known = std::ranges::find(formats, name, &Format::name);
  return known == std::end(formats) ? nullptr : known;
}

}  // namespace

const StringFormat* string_format(std::string_view name) { return find(STRING_FORMATS, name); }

const NumberFormat* number_format(std::string_view name) { return find(NUMBER_FORMATS, name); }

Strings strings_of(const StringFormat& format, StringLanguages& languages, regex::Exprs& exprs) {
  Strings strings{.max_len = format.max_len};
  if (format.pattern == ANY_STRING) return strings;
  auto parsed = [&](std::string_view pattern) {
    std::optional<regex::Problem> problem;  // none: the expressions are ours
    return regex::parse(pattern, exprs, problem, {.encoding = regex::Encoding::JsonString});
  };
  ExprId whole = parsed(format.pattern);
  if (!format.head.empty()) whole = exprs.concat(exprs.both(parsed(format.head), languages.length(0, format.max_head_len)), whole);
  strings.languages.push_back(whole);
  if (!format.except.empty()) strings.languages.push_back(languages.outside(parsed(format.except)));
  return strings;
}

Numbers numbers_of(const NumberFormat& format) {
  return {.whole = format.whole, .min = bound(format.min), .max = bound(format.max)};
}

}  // namespace aici::schema
