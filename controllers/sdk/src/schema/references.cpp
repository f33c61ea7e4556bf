#include "aici/schema/references.hpp"

#include <algorithm>
#include <functional>
#include <span>

#include "aici/sort.hpp"

namespace aici::schema {
namespace {

using json::Value;
using Kind = Value::Kind;

// The places of subschemas in a schema: under the keyword, in its list, or in its map.
constexpr std::string_view ONE[] = {"additionalProperties", "additionalItems", "items", "contains", "not", "if", "then", "else",
                                    "propertyNames", "unevaluatedItems", "unevaluatedProperties"};
constexpr std::string_view LISTS[] = {"allOf", "anyOf", "oneOf", "prefixItems", "items"};
constexpr std::string_view MAPS[] = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"};

bool is_applicator(std::string_view keyword) {
  auto is_in = [&](std::span<const std::string_view> words) { return std::ranges::find(words, keyword) != words.end(); };
  return is_in(ONE) || is_in(LISTS) || is_in(MAPS);
}

std::string_view without_fragment(std::string_view uri) { return uri.substr(0, uri.find('#')); }

bool has_scheme(std::string_view uri) {
  size_t colon = uri.find(':');
  return colon != std::string_view::npos && colon > 0 && uri.find('/') > colon;
}

// RFC 3986, section 5.2, as far as schemas need it: dot segments are removed, queries stay as written.
Text resolved(std::string_view base, std::string_view reference) {
  if (reference.empty()) return Text(base);
  if (has_scheme(reference) || base.empty()) return Text(reference);
  size_t authority = base.find("//");
  size_t path = authority == std::string_view::npos ? base.find(':') + 1 : base.find('/', authority + 2);
  path = std::min(path, base.size());
  Text joined;
  if (reference.starts_with("//")) return Text(base.substr(0, authority)) << reference;
  if (!reference.starts_with('/')) {
    size_t slash = base.rfind('/');
    if (slash != std::string_view::npos && slash >= path) joined << base.substr(path, slash + 1 - path);
    if (joined.empty() && path < base.size()) joined << (authority == std::string_view::npos ? "" : "/");
  }
  joined << reference;
  std::vector<std::string_view> segments;
  std::string_view rest = joined;
  bool absolute = rest.starts_with('/');
  while (!rest.empty()) {
    if (rest.starts_with('/')) rest.remove_prefix(1);
    std::string_view segment = rest.substr(0, rest.find('/'));
    rest.remove_prefix(segment.size());
    if (segment == "..") {
      if (!segments.empty()) segments.pop_back();
    } else if (segment != ".") {
      segments.push_back(segment);
    }
  }
  Text out(base.substr(0, path));
  for (size_t i = 0; i < segments.size(); i++) out << (i || absolute ? "/" : "") << segments[i];
  return out;
}

// %41 is A; malformed sequences stay.
Text percent_decoded(std::string_view text) {
  Text out;
  auto hex = [](char c) { return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1; };
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] == '%' && i + 2 < text.size() && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
      out << static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2])), i += 2;
    } else {
      out << text[i];
    }
  }
  return out;
}

const Value* text_of(const Value& schema, std::string_view keyword) {
  const Value* value = schema.find(keyword);
  return value && value->is(Kind::String) ? value : nullptr;
}

Draft draft_of(std::string_view uri) {
  constexpr std::pair<std::string_view, Draft> DRAFTS[] = {{"draft-03", Draft::Draft4},       {"draft-04", Draft::Draft4},
                                                           {"draft-06", Draft::Draft6},       {"draft-07", Draft::Draft7},
                                                           {"draft/2019-09", Draft::Draft2019}, {"draft/2020-12", Draft::Draft2020}};
  for (auto [part, draft] : DRAFTS)
    if (uri.find("json-schema.org/") != uri.npos && uri.find(part) != uri.npos) return draft;
  return Draft::Unsaid;
}

bool is_old(Draft draft) { return draft == Draft::Draft4 || draft == Draft::Draft6 || draft == Draft::Draft7; }

}  // namespace

bool is_meta_schema(std::string_view uri) {
  return draft_of(uri) != Draft::Unsaid && (uri.ends_with("schema") || uri.ends_with("schema#") || uri.find("/meta/") != uri.npos);
}

References::References(const Value& root) {
  resources_.push_back({Text(), &root});
  walk(root, 0, 0);
  add_meta_schemas();
  sort(bases_, [](const Based& x, const Based& y) { return std::less<>()(x.schema, y.schema); });
}

// The parser limits the depth of a document.
void References::walk(const Value& schema, uint32_t base, uint32_t depth) {
  if (!schema.is(Kind::Object)) return;
  Draft draft = resources_[base].draft;
  if (const Value* said = text_of(schema, "$schema"); said && (depth == 0 || schema.find("$id") || schema.find("id")))
    draft = draft_of(said->text);
  if (depth == 0) resources_[0].draft = draft;
  const Value* id = draft == Draft::Draft4 ? text_of(schema, "id") : nullptr;
  if (!id) id = text_of(schema, "$id");
  if (is_old(draft) && text_of(schema, "$ref")) id = nullptr;
  if (id && !id->text.view().starts_with('#')) {
    Text uri = resolved(resources_[base].uri, without_fragment(id->text));
    if (depth == 0) {
      resources_[0].uri = static_cast<Text&&>(uri);
    } else if (!uri.empty()) {
      base = static_cast<uint32_t>(resources_.size());
      resources_.push_back({static_cast<Text&&>(uri), &schema, draft});
    }
  }
  auto add_anchor = [&](std::string_view name) { anchors_.push_back({Text(resources_[base].uri) << '#' << name, &schema}); };
  if (id && id->text.view().starts_with('#') && id->text.size() > 1) add_anchor(id->text.view().substr(1));  // draft-07
  for (std::string_view keyword : {"$anchor", "$dynamicAnchor"})
    if (const Value* anchor = text_of(schema, keyword)) add_anchor(anchor->text);
  bases_.push_back({&schema, base});
  if (const Value* reference = text_of(schema, "$ref"); reference && is_meta_schema(without_fragment(reference->text)))
    meta_schemas_.push_back(Text(without_fragment(reference->text)));
  for (std::string_view keyword : ONE)
    if (const Value* inner = schema.find(keyword)) walk(*inner, base, depth + 1);
  for (std::string_view keyword : LISTS)
    if (const Value* list = schema.find(keyword); list && list->is(Kind::Array))
      for (const Value& inner : list->items) walk(inner, base, depth + 1);
  for (std::string_view keyword : MAPS)
    if (const Value* map = schema.find(keyword); map && map->is(Kind::Object))
      for (const Value& inner : map->items) walk(inner, base, depth + 1);
  for (size_t i = 0; i < schema.keys.size(); i++)
    if (!is_applicator(schema.keys[i])) note_references(schema.items[i], base);
}

// Unknown keywords hold no schemas, so no `$id` in there counts; but a `$ref` may point to a schema in there.
void References::note_references(const Value& value, uint32_t base) {
  if (value.find("$ref")) bases_.push_back({&value, base});
  for (const Value& inner : value.items) note_references(inner, base);
}

uint32_t References::base_of(const Value& schema) const {
  auto place = std::ranges::lower_bound(bases_, &schema, std::less<>(), &Based::schema);
  return place != bases_.end() && place->schema == &schema ? place->base : 0;
}

bool References::is_only_reference(const Value& schema) const {
  return text_of(schema, "$ref") && (schema.items.size() == 1 || is_old(resources_[base_of(schema)].draft));
}

const Value* References::target(const Value& from, std::string_view reference) const {
  uint32_t base = base_of(from);
  std::string_view uri = without_fragment(reference);
  Text fragment = percent_decoded(reference.substr(std::min(reference.size(), uri.size() + 1)));
  Text full = resolved(resources_[base].uri, uri);
  if (!fragment.empty() && !fragment.view().starts_with('/')) {
    Text name = Text(full) << '#' << fragment;
    for (const Named& anchor : anchors_)
      if (anchor.uri.view() == name.view()) return anchor.schema;
    return nullptr;
  }
  for (const Named& resource : resources_)
    if (resource.uri.view() == full.view()) return json::at_pointer(*resource.schema, fragment);
  return nullptr;
}

const Value* References::dynamic_target(const Value& from, std::string_view reference, std::span<const uint32_t> scope) const {
  const Value* first = target(from, reference);
  size_t hash = reference.find('#');
  std::string_view name = hash == reference.npos ? "" : reference.substr(hash + 1);
  const Value* anchor = first ? text_of(*first, "$dynamicAnchor") : nullptr;
  if (!anchor || anchor->text.view() != name) return first;
  for (uint32_t resource : scope) {
    Text full = Text(resources_[resource].uri) << '#' << name;
    for (const Named& named : anchors_)
      if (named.uri.view() == full.view() && named.schema->find("$dynamicAnchor")) return named.schema;
  }
  return first;
}

const Value* References::recursive_target(const Value& from, std::span<const uint32_t> scope) const {
  auto is_open = [](const Value& schema) {
    const Value* anchor = schema.find("$recursiveAnchor");
    return anchor && anchor->is(Kind::True);
  };
  const Value* root = resources_[base_of(from)].schema;
  if (is_open(*root))
    for (uint32_t resource : scope)
      if (is_open(*resources_[resource].schema)) return resources_[resource].schema;
  return root;
}

}  // namespace aici::schema
