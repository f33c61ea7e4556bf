#include "terminals.hpp"

#include "aici/regex/parser.hpp"
#include "aici/utf8.hpp"
#include "json_terminal.hpp"

namespace aici::grammar {
namespace {

// "\n" in a keyword is two characters, which is hardly ever meant.
bool looks_escaped(std::string_view keyword) {
  for (size_t i = 0; i + 1 < keyword.size(); i++)
    if (keyword[i] == '\\' && std::string_view("nrt\"'").find(keyword[i + 1]) != std::string_view::npos) return true;
  return false;
}

}  // namespace

Terminal make_terminal(std::string_view quoted, Place place, Precedence precedence, std::vector<Problem>& problems) {
  Terminal terminal;
  terminal.place = place;
  terminal.precedence = precedence;
  if (is_quoted_regex(quoted)) {
    terminal.kind = Terminal::Kind::Regex;
    terminal.text = Text(quoted.substr(1, quoted.size() - 2));
    terminal.name = Text(quoted);
    return terminal;
  }
  terminal.kind = Terminal::Kind::Keyword;
  terminal.text = Text(quoted);
  char quote = quoted.find('"') == std::string_view::npos ? '"' : '\'';
  terminal.name << quote << quoted << quote;
  if (looks_escaped(quoted)) {
    Text message("keywords know no escapes: ");
    add_warning(problems, place, message << terminal.name << " has a backslash in it; a regex "
                                         << "\"/.../\" knows escapes");
  }
  return terminal;
}

Terminal json_terminal(std::string_view schema, Place place) {
  constexpr size_t SHOWN = 40;
  Terminal terminal;
  terminal.kind = Terminal::Kind::Json;
  terminal.text = Text(schema);
  terminal.name << "%json " << schema.substr(0, SHOWN) << (schema.size() > SHOWN ? "..." : "");
  terminal.place = place;
  return terminal;
}

namespace {

regex::ExprId spelled(const Terminal& keyword, regex::Exprs& exprs, regex::Encoding encoding) {
  std::vector<uint32_t> text;
  decode_utf8(keyword.text, text);
  regex::ExprId expr = regex::EMPTY;
  for (size_t i = text.size(); i-- > 0;) {
    regex::CodePoints one;
    one.add(text[i], text[i]);
    expr = exprs.concat((keyword.caseless ? one.either_case() : one).to_expr(exprs, encoding), expr);
  }
  return expr;
}

}  // namespace

regex::ExprId terminal_expr(const Terminal& terminal, regex::Exprs& exprs, regex::Encoding encoding) {
  std::optional<regex::Problem> problem;
  if (terminal.kind == Terminal::Kind::Regex)
    return regex::parse(terminal.text, exprs, problem, {.encoding = encoding, .set_operators = true});
  if (encoding != regex::Encoding::Utf8) return terminal.kind == Terminal::Kind::Json ? regex::NOTHING : spelled(terminal, exprs, encoding);
  if (terminal.kind == Terminal::Kind::Json) {
    schema::Report report;
    return json_expr(terminal.text, exprs, report);
  }
  std::string_view text = terminal.text;
  regex::ExprId expr = regex::EMPTY;
  for (size_t i = text.size(); i-- > 0;) {
    auto byte = static_cast<uint8_t>(text[i]), other = static_cast<uint8_t>(byte ^ 0x20);
    regex::ByteSet set = regex::ByteSet::range(byte, byte);
    if (terminal.caseless && (byte | 0x20) >= 'a' && (byte | 0x20) <= 'z') set.add(other);
    expr = exprs.concat(exprs.bytes(set), expr);
  }
  return expr;
}

namespace {

constexpr size_t MAX_LEXER_WEIGHT = 30000;  // of a schema: the lexer needs room for derivatives

void check_schema(const Terminal& terminal, bool scannerless, std::vector<Problem>& problems) {
  regex::Exprs exprs;
  schema::Report report;
  json_expr(terminal.text, exprs, report);
  if (!scannerless && exprs.weight() > MAX_LEXER_WEIGHT) add_error(problems, terminal.place, "%json: the schema is too large for a lexeme");
  auto add = [&](const schema::Problem& found, Severity severity) {
    Text message("%json");
    if (!found.pointer.empty()) message << " at #" << found.pointer;
    problems.push_back({severity, terminal.place, message << ": " << found.message});
  };
  for (const schema::Problem& found : report.problems) add(found, Severity::Error);
  for (const schema::Problem& found : report.warnings) add(found, Severity::Warning);
}

}  // namespace

void check_terminals(const Grammar& grammar, std::vector<Problem>& problems) {
  regex::Exprs exprs;
  for (const Terminal& terminal : grammar.terminals) {
    if (terminal.kind == Terminal::Kind::Json) check_schema(terminal, grammar.scannerless, problems);
    if (terminal.kind != Terminal::Kind::Regex) continue;
    std::optional<regex::Problem> bad;
    regex::ExprId expr = regex::parse(terminal.text, exprs, bad, {.set_operators = true});
    Text message;
    Place place = terminal.place;
    if (bad) {
      place.column += 2 + bad->position;  // behind the quote and the slash
      message << "in the regex /" << terminal.text << "/: " << bad->message;
    } else if (expr == regex::NOTHING) {
      message << "the regex /" << terminal.text << "/ matches nothing";
    } else if (exprs.nullable(expr) && !terminal.skip && !grammar.scannerless) {
      message << "the regex /" << terminal.text << "/ matches the empty string: only SKIP may; make it match something, and "
              << "put %empty where it may be absent";
    } else {
      continue;
    }
    add_error(problems, place, message);
  }
  for (const Production& production : grammar.productions)
    for (SymbolId symbol : production.body)
      if (grammar.is_terminal(symbol) && (grammar.terminals[symbol].skip || grammar.terminals[symbol].never)) {
        Text message(grammar.terminals[symbol].name);
        message << " is under " << (grammar.terminals[symbol].skip ? "SKIP" : "NEVER");
        add_error(problems, production.place, message << ", so that no rule ever sees it: use it in one of the two");
      }
}

}  // namespace aici::grammar
