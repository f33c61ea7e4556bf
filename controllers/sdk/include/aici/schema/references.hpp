// The target of `$ref` inside one document: pointers, anchors, embedded `$id`s; and the drafts of `$schema`.
#pragma once
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "aici/json_value.hpp"

namespace aici::schema {

// Unsaid: no `$schema`, or another than those of the drafts.
enum class Draft : uint8_t { Unsaid, Draft4, Draft6, Draft7, Draft2019, Draft2020 };

// Whether `uri` is the meta-schema of a draft.
bool is_meta_schema(std::string_view uri);

// A schema of schemas, for references to the meta-schema of a draft: the kinds of values under each keyword, for all
// drafts together.
extern const std::string_view META_SCHEMA;

class References {
 public:
  // `root` must outlive this object.
  explicit References(const json::Value& root);

  // The target of `reference`, the `$ref` of the schema `from`; null if the document has no such name.
  const json::Value* target(const json::Value& from, std::string_view reference) const;

  // The target of `$dynamicRef` and of `$recursiveRef`. `scope`: the schema resources passed through so far, the first of
  // each counts.
  const json::Value* dynamic_target(const json::Value& from, std::string_view reference, std::span<const uint32_t> scope) const;
  const json::Value* recursive_target(const json::Value& from, std::span<const uint32_t> scope) const;
  // The number of the resource (the document, or a schema with `$id`) in which `schema` stands.
  uint32_t base_of(const json::Value& schema) const;

  Draft draft() const { return resources_[0].draft; }  // of the document
  // Whether `schema` is nothing but its `$ref`, whatever stands beside it: the rule of drafts 4 to 7.
  bool is_only_reference(const json::Value& schema) const;

 private:
  struct Named {
    Text uri;  // without a fragment; for an anchor `uri#anchor`
    const json::Value* schema;
    Draft draft = Draft::Unsaid;
  };
  struct Based {
    const json::Value* schema;
    uint32_t base;              // into resources_
  };

  void walk(const json::Value& schema, uint32_t base, uint32_t depth);
  void note_references(const json::Value& value, uint32_t base);

  void add_meta_schemas();

  std::vector<std::unique_ptr<json::Value>> made_;
  std::vector<Text> meta_schemas_;  // their names in the document
  std::vector<Named> resources_;  // the first is the document
  std::vector<Named> anchors_;
  std::vector<Based> bases_;  // sorted by address
};

}  // namespace aici::schema
