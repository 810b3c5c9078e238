#include "formats/shared/tree_notes.hpp"

#include <utility>
#include <variant>

#include <tenfold/value.hpp>

#include "core/notes/notes.hpp"
#include "core/tree/depth.hpp"

// The writer. The reader is in tree_notes_apply.cpp.

namespace tenfold::detail::formats {
namespace {

class Collector {
 public:
  explicit Collector(ModuleVersions kept) : keeps_versions_(kept != ModuleVersions::elsewhere) {}

  void node(const TensorDict& tree, const std::string& path) {
    const Depth depth(depth_);
    const NodeInfo& info = tree.info();
    const bool batched = info.kind == NodeKind::tensordict || info.kind == NodeKind::tensorclass;
    if (batched || info.kind == NodeKind::lazy_stack) {
      nodes.members.emplace_back(path, batched ? batched_note(info) : stack_note(info));
    }
    if (keeps_versions_ && info.module_versions) {
      versions.members.emplace_back(path, *info.module_versions);
    }
    tree.for_each([&](const std::string& key, const TensorDict::Item& item) {
      const std::string child = note_path_child(path, key);
      if (const auto* leaf = std::get_if<Leaf>(&item)) {
        if (leaf->is_unbatched()) unbatched.items.emplace_back(child);
      } else if (const auto* plain = std::get_if<NonTensor>(&item)) {
        if (plain->is_stack) stacks.members.emplace_back(child, plain->stack_dim);
      } else {
        node(std::get<TensorDict>(item), child);
      }
    });
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
  std::size_t depth_ = 0;
};

}  // namespace

std::string tree_notes_of(const TensorDict& tree, ModuleVersions versions) {
  Collector collected(versions);
  collected.node(tree, "");
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
