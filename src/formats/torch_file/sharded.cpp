#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tree/node.hpp"
#include "formats/format.hpp"
#include "formats/shared/hub_index.hpp"
#include "formats/shared/object_file.hpp"
#include "formats/shared/problem.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

// `pytorch_model.bin.index.json`: the index that transformers writes for a checkpoint in several
// files of torch.save (shards). Each shard is a dict of tensors by name. tenfold reads an index as
// one dict of the tensors of all shards, and never writes an index.

namespace tenfold::detail::formats::torch_file {
namespace {

constexpr std::array<std::string_view, 3> kShardedSuffixes = {".bin.index.json", ".pt.index.json",
                                                              ".pth.index.json"};

bool has_index_suffix(const Path& path) {
  const std::string name = path.filename().string();
  return std::ranges::any_of(kShardedSuffixes, [&](std::string_view suffix) {
    return name.size() > suffix.size() && name.ends_with(suffix);
  });
}

bool probe_sharded(const FileHead& head) { return head.is_file() && has_index_suffix(head.path()); }

struct OpenedIndex {
  HubIndex index;
  std::vector<os::File> shards;
};

OpenedIndex open_index(const Path& path) {
  const os::File file = os::File::open_read(path);
  const std::string& where = file.display();
  OpenedIndex opened;
  opened.index = parse_hub_index(file.read_all(kMaxHubIndexBytes), where);
  opened.shards = open_indexed(folder_of_shards(path, opened.index), opened.index, where);
  return opened;
}

bool is_shard(const TensorDict& node) {
  const NodeInfo& info = node.info();
  const bool is_dict = info.kind == NodeKind::dict || info.kind == NodeKind::ordered_dict ||
                       info.kind == NodeKind::tensordict;
  return is_dict && !info.int_keys && info.typed_keys.empty();
}

TensorDict dict_in(os::File shard) {
  const std::string where = shard.display();
  const TensorDict::Item item = read_object_file(
      [file = std::make_shared<const os::File>(std::move(shard))] { return file; });
  const auto* dict = std::get_if<TensorDict>(&item);
  if (dict == nullptr || !is_shard(*dict)) {
    throw base::corrupt(where)
        .problem("not a shard")
        .expected("a dict of tensors with string keys")
        .found(describe_object(item));
  }
  return *dict;
}

/// Builds the dict: first the tensors that the weight map names, in its order, then the other
/// tensors of the shards, because transformers also loads them.
TensorDict tree_of(OpenedIndex opened, const std::string& where) {
  std::vector<TensorDict> shards;
  for (os::File& shard : opened.shards) shards.push_back(dict_in(std::move(shard)));
  NodeInfo info;
  info.kind = NodeKind::ordered_dict;
  TensorDict tree(info);
  for (const auto& [name, shard] : opened.index.weight_map) {
    if (!has_key(shards[shard], name)) {
      throw not_in_shard(name, opened.index.shards[shard], where);
    }
    tree.set(name, item_at_key(shards[shard], name));
  }
  for (const TensorDict& shard : shards) {
    shard.for_each([&](const std::string& name, const TensorDict::Item& item) {
      if (!has_key(tree, name)) tree.set(name, item);
    });
  }
  return tree;
}

TensorDict open_sharded(const FileHead& head, const OpenRequest& /*request*/) {
  return tree_of(open_index(head.path()), head.path().string());
}

[[noreturn]] void refuse_to_write() {
  throw base::unsupported()
      .part("format \"pt\"")
      .problem("this version writes no index of files of torch.save")
      .expected("a name that ends in \".pt\" or \".safetensors.index.json\"")
      .found("the name of an index of files of torch.save");
}

void check_sharded(const TensorDict&) { refuse_to_write(); }
void write_sharded(const TensorDict&, const Path&, const WriteRequest&) { refuse_to_write(); }

VerifyReport verify_sharded(const Path& path, const VerifyRequest& request) {
  VerifyReport report;
  try {
    OpenedIndex opened = open_index(path);
    const os::Directory folder = folder_of_shards(path, opened.index);
    for (const std::string& name : opened.index.shards) {
      add_report(report, kFormat.verify(folder.display_of(name), request));
    }
    if (report.ok()) tree_of(std::move(opened), path.string());
  } catch (const Error& error) {
    add_problem(report, error, {path.string(), "structure"});
  }
  return report;
}

}  // namespace

const Format kShardedFormat = {
    .name = "pt",
    .noun = "an index of files of torch.save",
    .suffixes = kShardedSuffixes,
    .holds_sparse = true,
    .probe = probe_sharded,
    .open_tree = open_sharded,
    .check_tree = check_sharded,
    .write_tree = write_sharded,
    .verify = verify_sharded,
};

}  // namespace tenfold::detail::formats::torch_file
