// The target of `$ref` inside one document: pointers, anchors, embedded `$id`s.
#pragma once
#include <string_view>
#include <vector>

#include "aici/json_value.hpp"

namespace aici::schema {

class References {
 public:
  // `root` must outlive this object.
  explicit References(const json::Value& root);

  // The target of `reference`, the `$ref` of the schema `from`; null if the document has no such name.
  const json::Value* target(const json::Value& from, std::string_view reference) const;

 private:
  struct Named {
    Text uri;  // without a fragment; for an anchor `uri#anchor`
    const json::Value* schema;
  };
  struct Based {
    const json::Value* schema;  // has a `$ref`
    uint32_t base;              // into resources_
  };

  void walk(const json::Value& schema, uint32_t base, uint32_t depth);
  void note_references(const json::Value& value, uint32_t base);

  std::vector<Named> resources_;  // the first is the document
  std::vector<Named> anchors_;
  std::vector<Based> bases_;  // sorted by address
};

}  // namespace aici::schema
