#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/value.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tree/assembled_source.hpp"
#include "core/tree/node.hpp"
#include "core/value/value_json.hpp"
#include "formats/format.hpp"
#include "formats/safetensors/file.hpp"
#include "formats/safetensors/leaf_source.hpp"
#include "formats/shared/dcp_manifest.hpp"
#include "formats/shared/problem.hpp"
#include "os/fs/directory.hpp"

// Folders that torch.distributed.checkpoint's HuggingFaceStorageWriter writes with
// save_distributed=True: `shard-<rank + 1>-model-<i>-of-<n>.safetensors`. Each file has boxes
// (rectangular parts) of tensors that one rank held and, in `__metadata__["DCP_SHARDING_INFO"]`,
// the offsets of these boxes in the tensors: `{"w": {"saved_offsets": [2, 0]}}`. If the folder has
// a manifest of tenfold for this layout (shared/dcp_manifest.hpp), only the files that it names are
// read. Otherwise, all files with such a name are read, because torch writes no list of the files.

namespace tenfold::detail::formats::safetensors {
namespace {

constexpr std::array<std::string_view, 0> kDcpSuffixes = {};
constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kShardingInfo = "DCP_SHARDING_INFO";

bool is_shard(std::string_view name) {
  return name.starts_with("shard-") && name.find("-model-") != std::string_view::npos &&
         name.ends_with(kSuffix);
}

bool probe_dcp(const FileHead& head) {
  return head.is_folder() && (std::ranges::any_of(head.folder().list(), is_shard) ||
                              has_manifest(head.folder(), kShardsLayout));
}

/// Opens the shards that the manifest names, in the order of the manifest. Throws Error(corrupt) if
/// one is missing.
std::vector<OpenedFile> open_listed_shards(const os::Directory& folder, const Manifest& manifest) {
  std::vector<OpenedFile> shards;
  for (const std::string& name : manifest.files) {
    os::File file = os::File::try_open_read_at(folder, name);
    if (!file.valid()) {
      throw base::corrupt(folder.display_of(name))
          .problem("missing")
          .expected("the file that ", base::quote(kManifestName), " names")
          .found("none");
    }
    shards.push_back(open_file(std::move(file)));
  }
  return shards;
}

/// Opens all files with the name of a shard, in the order of their names. Throws Error(corrupt) if
/// there is none.
std::vector<OpenedFile> open_shards(const os::Directory& folder, const Path& path) {
  std::vector<std::string> names = folder.list();
  std::erase_if(names, [](const std::string& name) { return !is_shard(name); });
  if (names.empty()) {
    throw base::corrupt(path.string())
        .problem("no shards")
        .expected("files called \"shard-<rank + 1>-model-<i>-of-<n>.safetensors\"")
        .found("none");
  }
  std::ranges::sort(names);
  std::vector<OpenedFile> shards;
  for (const std::string& name : names) {
    shards.push_back(open_file(os::File::open_read_at(folder, name)));
  }
  return shards;
}

/// The offsets of the boxes in one file.
class ShardingInfo {
 public:
  explicit ShardingInfo(const OpenedFile& shard) : where_(shard.source->file().display()) {
    const std::string* text = shard.header->metadata_value(kShardingInfo);
    if (text != nullptr) {
      value_ = parse_value(*text, {where_, "metadata " + base::quote(kShardingInfo)});
    }
  }

  /// Returns the offsets of this file's box of the tensor `name`, which has `rank` dimensions.
  /// Returns zeros if the file has no metadata "DCP_SHARDING_INFO": then all its tensors are
  /// complete. Throws Error(corrupt) if the metadata has no valid offsets for the tensor.
  Shape offsets(std::string_view name, std::size_t rank) const {
    if (value_.is_null()) return Shape(rank, 0);
    const auto* tensors = value_.get_if<Value::Object>();
    const Value* tensor = tensors == nullptr ? nullptr : tensors->find(name);
    const auto* fields = tensor == nullptr ? nullptr : tensor->get_if<Value::Object>();
    const Value* offsets = fields == nullptr ? nullptr : fields->find("saved_offsets");
    const auto* list = offsets == nullptr ? nullptr : offsets->get_if<Value::List>();
    if (list == nullptr || list->items.size() != rank) fail(name, rank);
    Shape shape;
    for (const Value& item : list->items) {
      const auto* offset = item.get_if<std::int64_t>();
      if (offset == nullptr || *offset < 0) fail(name, rank);
      shape.push_back(*offset);
    }
    return shape;
  }

 private:
  [[noreturn]] void fail(std::string_view name, std::size_t rank) const {
    throw base::corrupt(where_)
        .part("tensor ", base::quote(name), ": metadata ", base::quote(kShardingInfo))
        .expected("a list \"saved_offsets\" of ", rank, " integers from 0")
        .found("another value or none");
  }

  std::string where_;
  Value value_;
};

struct DividedTensor {
  DType dtype = DType::float32;
  Shape shape;  ///< bounding shape of its boxes
  std::vector<TensorPiece> pieces;
  std::set<std::pair<Shape, Shape>> boxes;
};

/// The tensors of all files.
class Tensors {
 public:
  void add(const OpenedFile& shard) {
    const ShardingInfo info(shard);
    for (std::size_t i = 0; i < shard.header->entries.size(); ++i) {
      const std::string_view name = shard.header->name(i);
      const auto lengths = shard.header->shape(i);
      const Shape sizes(lengths.begin(), lengths.end());
      const auto [found, is_new] = positions_.emplace(name, tensors.size());
      if (is_new) tensors.emplace_back(std::string(name), DividedTensor());
      DividedTensor& tensor = tensors[found->second].second;
      const DType dtype = shard.header->entries[i].dtype;
      if (is_new) tensor.dtype = dtype;
      if (dtype != tensor.dtype) {
        throw base::corrupt(shard.source->file().display())
            .part("tensor ", base::quote(name))
            .problem("a piece of it has another dtype")
            .expected(to_string(tensor.dtype), ", as in another file")
            .found(to_string(dtype));
      }
      const Shape offsets = info.offsets(name, sizes.size());
      grow(tensor, offsets, sizes, shard.source->file().display(), name);
      // A replicated tensor may be in several files.
      if (!tensor.boxes.emplace(offsets, sizes).second) continue;
      tensor.pieces.push_back({offsets, stored_leaf(dtype, sizes, shard.source, i)});
    }
  }

  std::vector<std::pair<std::string, DividedTensor>> tensors;

 private:
  static void grow(DividedTensor& tensor, const Shape& offsets, const Shape& sizes,
                   const std::string& where, std::string_view name) {
    tensor.shape.resize(std::max(tensor.shape.size(), sizes.size()), 0);
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      const auto end = base::checked_add(static_cast<std::uint64_t>(offsets[d]),
                                         static_cast<std::uint64_t>(sizes[d]));
      if (!end || *end > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        throw base::corrupt(where)
            .part("tensor ", base::quote(name))
            .problem("the end of its box is too large")
            .expected("at most 2^63 - 1")
            .found("offsets ", base::list_text(offsets), " and sizes ", base::list_text(sizes));
      }
      tensor.shape[d] = std::max(tensor.shape[d], static_cast<std::int64_t>(*end));
    }
  }

  std::unordered_map<std::string, std::size_t> positions_;
};

TensorDict tree_of(const std::vector<OpenedFile>& shards, const std::string& where) {
  Tensors all;
  for (const OpenedFile& shard : shards) all.add(shard);
  auto node = std::make_shared<Node>();
  node->info.kind = NodeKind::dict;
  node->where = where;
  // No file stores the order of the saved state dict, so sort by name.
  std::ranges::sort(all.tensors, {},
                    [](const auto& named) -> const std::string& { return named.first; });
  for (auto& [name, tensor] : all.tensors) {
    Leaf leaf =
        AssembledSource::assemble(tensor.dtype, std::move(tensor.shape), std::move(tensor.pieces),
                                  {where, "tensor " + base::quote(name)});
    node->entries.push_back({std::move(name), std::move(leaf)});
  }
  return tensordict_of(std::move(node));
}

/// Builds the tree that the manifest describes.
TensorDict tree_of(const std::vector<OpenedFile>& shards, const Manifest& manifest,
                   const std::string& where) {
  std::vector<ShardingInfo> infos;
  for (const OpenedFile& shard : shards) infos.emplace_back(shard);
  return manifest_tree(manifest, where, [&](std::size_t number) {
    const ManifestTensor& tensor = manifest.tensors[number];
    std::vector<TensorPiece> pieces;
    for (const ManifestTensor::Chunk& chunk : tensor.chunks) {
      const OpenedFile& shard = shards[chunk.file];
      const std::uint32_t entry = shard.header->find(tensor.name);
      const bool is_there =
          entry != KeyIndex::kNone && shard.header->entries[entry].dtype == tensor.dtype &&
          std::ranges::equal(shard.header->shape(entry), chunk.sizes) &&
          infos[chunk.file].offsets(tensor.name, chunk.sizes.size()) == chunk.offsets;
      if (!is_there) {
        throw base::corrupt(shard.source->file().display())
            .part("tensor ", base::quote(tensor.name))
            .expected("a box of ", to_string(tensor.dtype), " with offsets ",
                      base::list_text(chunk.offsets), " and sizes ", base::list_text(chunk.sizes),
                      ", as in ", base::quote(kManifestName))
            .found("another box or none");
      }
      pieces.push_back(
          {chunk.offsets, stored_leaf(tensor.dtype, chunk.sizes, shard.source, entry)});
    }
    return AssembledSource::assemble(tensor.dtype, tensor.shape, std::move(pieces),
                                     {where, "tensor " + base::quote(tensor.name)});
  });
}

struct OpenedFolder {
  std::vector<OpenedFile> shards;
  bool has_checksums = false;  ///< according to the manifest
  TensorDict tree;
  std::uint64_t num_tensors = 0;
};

bool has_checksums(const OpenedFile& shard) {
  return shard.header->metadata_value(kBoxesMember) != nullptr;
}

/// Call this if the folder has no manifest for this layout. Throws Error(corrupt) if one of the
/// shards has checksums: then tenfold wrote the shards, together with a manifest. Without the
/// manifest, the tree's values, which only the manifest stores, would be lost.
void check_written_by_torch(const std::vector<OpenedFile>& shards, const os::Directory& folder) {
  const auto shard = std::ranges::find_if(shards, has_checksums);
  if (shard == shards.end()) return;
  throw base::corrupt(folder.display_of(std::string(kManifestName)))
      .part("file")
      .expected("the manifest of ", base::quote(shard->source->file().display()),
                ", a file that tenfold wrote together with a manifest")
      .found("none, or another file")
      .remedy("restore the file from a copy; without it, the shards can only be opened one by one");
}

OpenedFolder open_folder(const Path& path) {
  const os::Directory folder = os::Directory::open(path);
  const std::optional<Manifest> manifest = read_manifest(folder);
  OpenedFolder opened;
  if (manifest && manifest->layout == kShardsLayout) {
    opened.shards = open_listed_shards(folder, *manifest);
    opened.has_checksums = manifest->has_checksums;
    opened.tree = tree_of(opened.shards, *manifest, path.string());
    opened.num_tensors = manifest->tensors.size();
  } else {
    opened.shards = open_shards(folder, path);
    check_written_by_torch(opened.shards, folder);
    opened.tree = tree_of(opened.shards, path.string());
    opened.num_tensors = opened.tree.size();
  }
  return opened;
}

TensorDict open_dcp(const FileHead& head, const OpenRequest& /*request*/) {
  return open_folder(head.path()).tree;
}

VerifyReport verify_dcp(const Path& path, const VerifyRequest& request) {
  std::uint64_t num_tensors = 0;
  VerifyReport report = verify_file(path, request, [&](VerifyReport& found) {
    verify_manifest(os::Directory::open(path), found);
    OpenedFolder opened = open_folder(path);
    num_tensors = opened.num_tensors;
    for (const OpenedFile& shard : opened.shards) {
      if (!opened.has_checksums || has_checksums(shard)) continue;
      found.problems.push_back(
          problem_of(base::corrupt(shard.source->file().display())
                         .part("metadata ", base::quote(kBoxesMember))
                         .expected("checksums, according to ", base::quote(kManifestName))
                         .found("none")));
    }
    return std::move(opened.shards);
  });
  report.num_leaves = num_tensors;  // tensors, not their pieces
  return report;
}

}  // namespace

const Format kDcpFormat = {
    .name = "dcp",
    .noun = "a checkpoint of torch.distributed",
    .suffixes = kDcpSuffixes,
    .probe = probe_dcp,
    .open_tree = open_dcp,
    .check_tree = nullptr,
    .write_tree = nullptr,
    .verify = verify_dcp,
};

}  // namespace tenfold::detail::formats::safetensors
