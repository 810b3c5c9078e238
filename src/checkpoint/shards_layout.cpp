#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "checkpoint/sharded_layout.hpp"
#include "codecs/json/json.hpp"
#include "codecs/zip/zip.hpp"
#include "core/tree/outline_leaf.hpp"
#include "formats/dcp/metadata.hpp"
#include "formats/dcp/writer.hpp"
#include "formats/folder/inventory.hpp"
#include "formats/safetensors/file.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/dcp_manifest.hpp"
#include "formats/shared/json_checksums.hpp"
#include "formats/shared/problem.hpp"
#include "io/check_supported.hpp"
#include "io/registry.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

// ShardLayout::shards and ShardLayout::torch: folders as torch.distributed.checkpoint writes them,
// with separate files for each rank.

namespace tenfold::checkpoint {
namespace {

namespace formats = detail::formats;
namespace dcp = detail::formats::dcp;
namespace safetensors = detail::formats::safetensors;

constexpr const char* kTorchMetadata = ".metadata";
constexpr std::string_view kDistcpSuffix = ".distcp";
constexpr std::uint64_t kItemAlignment = 64;

std::string numbered(std::size_t number) {
  const std::string digits = std::to_string(number);
  return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
}

/// Returns the name that torch's HuggingFaceStorageWriter(save_distributed=True) gives. `rank`
/// counts from 0, `number` from 1; in the name, both count from 1.
std::string shard_name(int rank, std::size_t number, std::size_t count) {
  return "shard-" + numbered(static_cast<std::size_t>(rank) + 1) + "-model-" + numbered(number) +
         "-of-" + numbered(count) + ".safetensors";
}

/// Returns true if tenfold or torch writes a file named `name` in a save with ShardLayout::shards
/// or ShardLayout::torch. Other tools also write a file `metadata.json`: returns true for this name
/// only if the file is a manifest, which may be damaged or have a newer version.
bool is_own_name(const os::Directory& folder, const std::string& name) {
  if (name == formats::kManifestName) {
    try {
      return formats::has_manifest(folder);
    } catch (const Error& error) {
      if (!formats::is_problem_of_files(error)) throw;
      return false;  // no permission to read it
    }
  }
  return name == kTorchMetadata || name == kStagingMarker ||
         (name.starts_with("__") &&
          (name.ends_with(kDistcpSuffix) || name.ends_with(kTorchMetadata))) ||
         (name.starts_with("shard-") && name.find("-model-") != std::string::npos &&
          name.ends_with(".safetensors"));
}

/// Returns the sorted names of the files in a folder that neither tenfold nor torch writes in a
/// save with ShardLayout::shards or ShardLayout::torch.
std::vector<std::string> foreign_files(const os::Directory& folder) {
  std::vector<std::string> foreign = folder.list();
  std::erase_if(foreign, [&](const std::string& name) {
    return formats::is_hidden_name(name) || is_own_name(folder, name);
  });
  std::ranges::sort(foreign);
  return foreign;
}

/// A folder with separate files for each rank, and the manifest.
class ShardsLayout : public ShardedLayout {
 public:
  ShardsLayout(const Path& path, const TensorDict& outline, const ShardedWriteOptions& options,
               const std::vector<PlannedShard>& shards)
      : path_(path), options_(options), shards_(shards) {
    OutlineNumbers numbers(outline, &tensors_);
    names_.resize(tensors_.size());
    for (const auto& tensor : safetensors::plan_file(outline, true).plan.tensors) {
      names_[numbers.of(tensor.leaf)] = tensor.name;
    }
    for (const PlannedShard& planned : shards_) {
      const TensorPlace& tensor = tensors_[planned.shard.tensor];
      places_.push_back({tensor.key, tensor.dtype, planned.shard.sizes, kNoFile, 0});
    }
  }

  bool is_folder() const noexcept override { return true; }

  void publish(const PublishedTree& tree,
               const std::vector<std::vector<SummedBox>>& boxes) override {
    finish(tree.outline, boxes);
    has_begun_ = true;
    write_new(std::string(formats::kManifestName),
              formats::write_manifest(layout_name(), data_files(), options_.checksums,
                                      manifest_tensors(), tree.outline));
    folder().remove_file(std::string(kStagingMarker));
    replacement_->publish(options_.durable);
  }

 protected:
  static constexpr std::size_t kNoFile = static_cast<std::size_t>(-1);

  virtual std::string layout_name() const = 0;
  /// Writes everything except the manifest and what the ranks have written.
  virtual void finish(const TensorDict& tree, const std::vector<std::vector<SummedBox>>& boxes) = 0;

  /// Returns true if the shard has bytes in a file.
  bool is_stored(std::size_t shard) const {
    return shards_[shard].is_written && numel_of(shards_[shard].shard.sizes) != 0;
  }

  /// Creates the folder and the files. File i gets sizes[i] bytes.
  void make_files(const std::vector<std::uint64_t>& sizes, const std::string& id) {
    std::uint64_t total = 0;
    for (const std::uint64_t size : sizes) total += size;
    replacement_.emplace(path_, total, foreign_files);
    write_new(std::string(kStagingMarker), marker_text(id), false);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      os::File file = os::File::create_at(folder(), files_[i].path);
      file.truncate(sizes[i]);
      files_[i].is_reserved = file.reserve();
    }
    staging_ = beside(path_, replacement_->hidden_name()).string();
  }

  os::Directory& folder() { return replacement_->folder(); }

  void write_new(const std::string& name, const std::string& text, bool syncs = true) {
    os::File file = os::File::create_at(folder(), name);
    file.write_at(0, std::as_bytes(std::span(text)));
    if (syncs && options_.durable) file.sync();
    file.close_written();
  }

  /// Reopens a file that a rank has written, to write the bytes that the rank left out: what
  /// precedes and follows its tensors in the format of the file.
  os::File reopen(std::size_t number) {
    return os::File::open_read_write_at(folder(), files_[number].path);
  }
  void close(os::File file) const {
    if (options_.durable) file.sync();
    file.close_written();
  }

  std::vector<std::string> data_files() const {
    std::vector<std::string> names;
    for (const StagedFile& file : files_) names.push_back(file.path);
    return names;
  }

  Path path_;
  ShardedWriteOptions options_;
  std::vector<PlannedShard> shards_;
  std::vector<TensorPlace> tensors_;  ///< keys, dtypes and shapes of the tensors
  std::vector<std::string> names_;    ///< torch.distributed.checkpoint's names of the tensors
  std::optional<formats::FolderReplacement> replacement_;

 private:
  std::vector<formats::ManifestTensor> manifest_tensors() const {
    std::vector<formats::ManifestTensor> tensors;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      tensors.push_back({names_[i], tensors_[i].dtype, tensors_[i].shape, {}});
    }
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      if (places_[i].file == kNoFile) continue;
      const ShardBox& shard = shards_[i].shard;
      tensors[shard.tensor].chunks.push_back({places_[i].file, shard.offsets, shard.sizes});
    }
    return tensors;
  }
};

/// One or more safetensors files for each rank that has boxes to store. The names of the tensors in
/// a file are unique, so the boxes of one tensor are in different files: a rank with n boxes of one
/// tensor has at least n files.
class SafetensorsShards final : public ShardsLayout {
 public:
  SafetensorsShards(const Path& path, const TensorDict& outline, const ShardedWriteOptions& options,
                    const std::vector<PlannedShard>& shards, const std::string& id)
      : ShardsLayout(path, outline, options, shards) {
    assign_files();
    std::vector<std::uint64_t> sizes;
    for (std::size_t file = 0; file < files_.size(); ++file) sizes.push_back(place_file(file));
    make_files(sizes, id);
  }

 private:
  struct FileTensors {
    std::vector<std::size_t> shards;  ///< indices of the shards, in file order
    std::uint64_t header_bytes = 0;
  };

  std::string layout_name() const override { return std::string(formats::kShardsLayout); }

  void assign_files() {
    std::map<int, std::map<std::size_t, std::size_t>> counts;  // boxes by rank and tensor
    std::map<std::pair<int, std::size_t>, std::vector<std::size_t>> by_file;
    std::unordered_set<std::size_t> empty;  // tensors without elements that already have an entry
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      ShardBox& shard = shards_[i].shard;
      const Shape& shape = tensors_[shard.tensor].shape;
      const bool is_first_empty = numel_of(shape) == 0 && empty.insert(shard.tensor).second;
      if (is_first_empty) {
        // A tensor without elements has one entry, from which readers take dtype and shape.
        shard.offsets = Shape(shape.size(), 0);
        shard.sizes = shape;
        places_[i].shape = shape;
      }
      if (!is_stored(i) && !is_first_empty) continue;
      by_file[{shard.rank, counts[shard.rank][shard.tensor]++}].push_back(i);
    }
    std::map<int, std::size_t> files_of;
    for (const auto& [file, shards] : by_file) ++files_of[file.first];
    for (auto& [file, shards] : by_file) {
      for (const std::size_t i : shards) places_[i].file = files_.size();
      files_.push_back({shard_name(file.first, file.second + 1, files_of[file.first]), true});
      of_file_.push_back({std::move(shards), 0});
    }
  }

  /// Sorts the tensors of a file, computes their offsets and returns the file size.
  std::uint64_t place_file(std::size_t file) {
    FileTensors& of_file = of_file_[file];
    std::vector<safetensors::Plan::Tensor> tensors;
    for (const std::size_t i : of_file.shards) tensors.push_back(tensor_of(i));
    std::vector<std::size_t> ordered;
    for (const std::size_t i : safetensors::reference_order(tensors)) {
      ordered.push_back(of_file.shards[i]);
    }
    of_file.shards = std::move(ordered);
    of_file.header_bytes = header_of(file).size();
    std::uint64_t offset = of_file.header_bytes;
    for (const std::size_t i : of_file.shards) {
      places_[i].offset_bytes = offset;
      offset += nbytes_of(places_[i].dtype, places_[i].shape);
    }
    return offset;
  }

  safetensors::Plan::Tensor tensor_of(std::size_t shard) const {
    const TensorPlace& place = places_[shard];
    return {names_[shards_[shard].shard.tensor], outline_leaf(place.dtype, place.shape)};
  }

  std::string header_of(std::size_t file) const {
    std::vector<safetensors::Plan::Tensor> tensors;
    std::vector<std::vector<formats::Box>> boxes;
    codecs::JsonWriter info(codecs::JsonStyle::python);
    info.begin_object();
    for (const std::size_t i : of_file_[file].shards) {
      const PlannedShard& planned = shards_[i];
      tensors.push_back(tensor_of(i));
      boxes.emplace_back();
      for (const SummedBox& part : planned.parts) boxes.back().push_back(part.box);
      info.key(tensors.back().name);
      info.begin_object();
      info.member("saved_offsets", planned.shard.offsets);
      info.end_object();
    }
    info.end_object();
    std::vector<const safetensors::Plan::Tensor*> ordered;
    for (const auto& tensor : tensors) ordered.push_back(&tensor);
    return blank_header(
        ordered, {{"DCP_SHARDING_INFO", info.take()}, {"DCP_VERSION", "1.0"}, {"format", "pt"}},
        options_.checksums ? &boxes : nullptr);
  }

  void finish(const TensorDict& /*tree*/,
              const std::vector<std::vector<SummedBox>>& boxes) override {
    for (std::size_t number = 0; number < files_.size(); ++number) {
      std::string header = header_of(number);
      if (options_.checksums) {
        std::vector<std::uint64_t> sums;
        for (const std::size_t i : of_file_[number].shards) {
          for (const SummedBox& box : boxes[i]) sums.push_back(box.checksum);
        }
        formats::fill_boxes(header, formats::find_checksums(header, safetensors::kBoxesMember),
                            sums);
      }
      os::File file = reopen(number);
      file.write_at(0, std::as_bytes(std::span(header)));
      close(std::move(file));
    }
  }

  std::vector<FileTensors> of_file_;
};

/// A folder with `.metadata`, one `.distcp` file for each rank that has boxes to store, and
/// kValuesFile if there are values. A `.distcp` file is a concatenation of torch.save files; those
/// of tensors begin at multiples of kItemAlignment.
class TorchShards final : public ShardsLayout {
 public:
  TorchShards(const Path& path, const TensorDict& outline, const ShardedWriteOptions& options,
              const std::vector<PlannedShard>& shards, const std::string& id)
      : ShardsLayout(path, outline, options, shards), items_(shards.size()) {
    std::map<int, std::size_t> files;
    std::vector<std::uint64_t> sizes;
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      if (!is_stored(i)) continue;
      const int rank = shards_[i].shard.rank;
      const auto [found, is_new] = files.emplace(rank, files_.size());
      if (is_new) {
        files_.push_back({"__" + std::to_string(rank) + "_0" + std::string(kDistcpSuffix), true});
        sizes.push_back(0);
      }
      std::uint64_t& end = sizes[found->second];
      const std::uint64_t begin = (end + kItemAlignment - 1) / kItemAlignment * kItemAlignment;
      const dcp::ItemFile item(places_[i].dtype, places_[i].shape);
      items_[i] = {static_cast<std::uint32_t>(found->second), begin, item.size_bytes(), 0};
      places_[i].file = found->second;
      places_[i].offset_bytes = begin + item.data_offset();
      end = begin + item.size_bytes();
    }
    make_files(sizes, id);
  }

 private:
  std::string layout_name() const override { return std::string(formats::kTorchLayout); }

  void finish(const TensorDict& tree, const std::vector<std::vector<SummedBox>>& boxes) override {
    values_.clear();
    entry_of_.clear();
    std::vector<std::vector<std::size_t>> of_file(files_.size());
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      if (places_[i].file != kNoFile) of_file[places_[i].file].push_back(i);
    }
    for (std::size_t number = 0; number < files_.size(); ++number) {
      os::File file = reopen(number);
      for (const std::size_t i : of_file[number]) write_complement(file, i, boxes[i]);
      close(std::move(file));
    }
    dcp::Metadata metadata;
    metadata.files = data_files();
    add_node(metadata, tree, {}, "");
    require_different_names(metadata);
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      const ShardBox& shard = shards_[i].shard;
      auto& tensor = std::get<dcp::TensorEntry>(metadata.entries[entry_of_[shard.tensor]].what);
      const bool is_whole = shard.sizes == tensor.shape && tensor.chunks.empty();
      if (!is_stored(i) && !is_whole) continue;
      tensor.chunks.push_back({shard.offsets, shard.sizes, items_[i]});
    }
    has_begun_ = true;
    if (!values_.empty()) write_new(kValuesFile, values_);
    write_new(kTorchMetadata, dcp::write_metadata(metadata));
  }

  void write_complement(os::File& file, std::size_t shard,
                        const std::vector<SummedBox>& parts) const {
    const TensorPlace& place = places_[shard];
    std::uint32_t crc32 = 0;
    for (const SummedBox& part : parts) {
      crc32 = codecs::crc32_combine(crc32, static_cast<std::uint32_t>(part.checksum),
                                    nbytes_of(place.dtype, part.box.sizes));
    }
    const dcp::ItemFile item(place.dtype, place.shape);
    const std::string head = item.head(crc32);
    const std::string tail = item.tail(crc32);
    const std::uint64_t begin = items_[shard].begin;
    file.write_at(begin, std::as_bytes(std::span(head)));
    file.write_at(begin + item.size_bytes() - tail.size(), std::as_bytes(std::span(tail)));
  }

  /// Adds the entries of a node under joined keys, as torch's flatten_state_dict() does: flattens
  /// dicts, and those lists that contain tensors or dicts.
  void add_node(dcp::Metadata& metadata, const TensorDict& node, std::vector<dcp::Key> path,
                const std::string& name) {
    const NodeKind kind = node.kind();
    const bool is_list =
        kind == NodeKind::list || kind == NodeKind::tuple || kind == NodeKind::lazy_stack;
    node.for_each([&](const std::string& key, const TensorDict::Item& item) {
      path.push_back({key, is_list});
      const std::string inner = path.size() == 1 ? key : name + "." + key;
      if (const auto* leaf = std::get_if<Leaf>(&item)) {
        const std::size_t number = entry_of_.size();
        entry_of_.push_back(metadata.entries.size());
        metadata.entries.push_back(
            {names_[number], path, dcp::TensorEntry{leaf->dtype(), leaf->shape(), {}}});
      } else if (const auto* plain = std::get_if<NonTensor>(&item)) {
        add_value(metadata, plain->value, path, inner);
      } else {
        add_node(metadata, std::get<TensorDict>(item), path, inner);
      }
      path.pop_back();
    });
  }

  /// Throws if two entries have the same name: readers find entries by name, so one of these
  /// entries would be lost.
  void require_different_names(const dcp::Metadata& metadata) const {
    std::unordered_set<std::string_view> names;
    for (const dcp::Entry& entry : metadata.entries) {
      if (names.insert(entry.name).second) continue;
      throw base::unsupported(path_)
          .part("key ", base::quote(entry.name))
          .problem("torch joins nested keys with dots")
          .expected("different keys")
          .found("the same one for two entries")
          .remedy("rename one of them");
    }
  }

  void add_value(dcp::Metadata& metadata, const Value& value, std::vector<dcp::Key> path,
                 const std::string& name) {
    if (const auto* object = value.get_if<Value::Object>()) {
      for (const auto& [key, member] : object->members) {
        path.push_back({key, false});
        add_value(metadata, member, path, name + "." + key);
        path.pop_back();
      }
      return;
    }
    const auto* list = value.get_if<Value::List>();
    if (list != nullptr && has_objects(*list)) {
      for (std::size_t i = 0; i < list->items.size(); ++i) {
        path.push_back({std::to_string(i), true});
        add_value(metadata, list->items[i], path, name + "." + std::to_string(i));
        path.pop_back();
      }
      return;
    }
    metadata.entries.push_back({name, path, value_item(metadata, value, name)});
  }

  static bool has_objects(const Value::List& list) {
    return std::ranges::any_of(list.items, [](const Value& item) {
      const auto* inner = item.get_if<Value::List>();
      return item.is<Value::Object>() || (inner != nullptr && has_objects(*inner));
    });
  }

  dcp::Item value_item(dcp::Metadata& metadata, const Value& value, const std::string& name) {
    if (values_.empty()) metadata.files.emplace_back(kValuesFile);
    try {
      const dcp::ItemFile item(value);
      const dcp::Item place{static_cast<std::uint32_t>(metadata.files.size() - 1), values_.size(),
                            item.size_bytes(), 0};
      values_ += item.head(0) + item.tail(0);
      return place;
    } catch (const Error& error) {
      throw Error(error.code(),
                  path_.string() + ": value " + base::quote(name) + ": " + error.what());
    }
  }

  static constexpr const char* kValuesFile = "__0_1.distcp";

  std::vector<dcp::Item> items_;       ///< for each shard; zeros if it is not stored
  std::vector<std::size_t> entry_of_;  ///< for each tensor, the index of its entry in the metadata
  std::string values_;
};

}  // namespace

std::unique_ptr<ShardedLayout> lay_out_shards(const Path& path, const TensorDict& outline,
                                              const std::vector<PlannedShard>& shards,
                                              const ShardedWriteOptions& options,
                                              const std::string& id) {
  const formats::Format& format = format_for_saving(path, options.format);
  if (!options.format.empty() && format.name != dcp::kFormat.name) {
    throw base::invalid_argument(path)
        .part("format")
        .expected(base::quote(dcp::kFormat.name),
                  " or no format, because each process writes separate files")
        .found(base::quote(format.name));
  }
  if (options.format.empty() && &format != &formats::folder::kFormat) {
    throw base::invalid_argument(path)
        .expected("the name of a folder, in which each process writes separate files")
        .found("one of format ", base::quote(format.name));
  }
  refuse_shard_size(format, path, options.shard_size_bytes);
  formats::refuse_existing(path, options.overwrite);
  formats::refuse_foreign(path, formats::foreign_at(path, foreign_files),
                          "a checkpoint of torch.distributed");
  std::unique_ptr<ShardedLayout> layout;
  with_path(path, [&] {
    if (options.layout == ShardLayout::shards) {
      layout = std::make_unique<SafetensorsShards>(path, outline, options, shards, id);
    } else {
      layout = std::make_unique<TorchShards>(path, outline, options, shards, id);
    }
  });
  return layout;
}

}  // namespace tenfold::checkpoint
