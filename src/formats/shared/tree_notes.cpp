#include "formats/shared/tree_notes.hpp"

#include <utility>

#include <tenfold/value.hpp>

#include "core/notes/notes.hpp"
#include "core/notes/walk.hpp"

// Writes tree notes; tree_notes_apply.cpp reads them.

namespace tenfold::detail::formats {
namespace {

class TreeNotesCollector final : public TreeVisitor {
 public:
  explicit TreeNotesCollector(ModuleVersions kept)
      : keeps_versions_(kept != ModuleVersions::elsewhere) {}

  void node(const std::string& path, const TensorDict& node) override {
    require_valid_info(path, node);
    const NodeInfo& info = node.info();
    const bool batched = info.kind == NodeKind::tensordict || info.kind == NodeKind::tensorclass;
    if (batched || info.kind == NodeKind::lazy_stack) {
      nodes.members.emplace_back(path, batched ? batched_note(info) : stack_note(info));
    }
    if (keeps_versions_ && info.module_versions) {
      versions.members.emplace_back(path, *info.module_versions);
    }
  }
  void leaf(const std::string& path, const Leaf& leaf) override {
    if (leaf.is_unbatched()) unbatched.items.emplace_back(path);
  }
  void value(const std::string& path, const NonTensor& value) override {
    require_valid_keys(path, value.value);
    if (value.is_stack) stacks.members.emplace_back(path, value.stack_dim);
  }

  Value::Object nodes;
  Value::Object stacks;
  Value::List unbatched;
  Value::Object versions;

 private:
  static Value batched_note(const NodeInfo& info) {
    Value::Object note;
    note.members.emplace_back("kind", to_string(info.kind));
    if (!info.batch_size.empty()) {
      Value::List lengths;
      for (const std::int64_t length : info.batch_size) lengths.items.emplace_back(length);
      note.members.emplace_back("batch_size", std::move(lengths));
    }
    if (!info.names.empty()) {
      Value::List names;
      for (const auto& dim : info.names) names.items.push_back(dim ? Value(*dim) : Value());
      note.members.emplace_back("names", std::move(names));
    }
    if (!info.class_name.empty()) note.members.emplace_back("class", info.class_name);
    if (!info.device.empty()) note.members.emplace_back("device", info.device);
    return note;
  }

  static Value stack_note(const NodeInfo& info) {
    Value::Object note;
    note.members.emplace_back("kind", to_string(info.kind));
    note.members.emplace_back("stack_dim", info.stack_dim);
    if (info.stack_dim_name) note.members.emplace_back("stack_dim_name", *info.stack_dim_name);
    return note;
  }

  bool keeps_versions_;
};

}  // namespace

std::string tree_notes_of(const TensorDict& tree, ModuleVersions versions) {
  TreeNotesCollector collected(versions);
  walk(tree, collected);
  Value::Object document;
  document.members.emplace_back("version", 1);
  const auto add = [&](const char* member, auto part) {
    document.members.emplace_back(member, std::move(part));
  };
  if (!collected.nodes.members.empty()) add("nodes", std::move(collected.nodes));
  if (!collected.stacks.members.empty()) add("stacks", std::move(collected.stacks));
  if (!collected.unbatched.items.empty()) add("unbatched", std::move(collected.unbatched));
  if (!collected.versions.members.empty()) add("versions", std::move(collected.versions));
  if (tree.info().schema) add("schema", *tree.info().schema);
  if (!tree.info().metadata.empty()) {
    Value::Object metadata;
    for (const auto& [key, text] : tree.info().metadata) metadata.members.emplace_back(key, text);
    add("metadata", std::move(metadata));
  }
  return document.members.size() == 1 ? std::string() : to_json(Value(std::move(document)));
}

}  // namespace tenfold::detail::formats
