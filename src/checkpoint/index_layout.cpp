#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "checkpoint/shard_ticket.hpp"
#include "checkpoint/sharded_layout.hpp"
#include "formats/format.hpp"
#include "formats/safetensors/file.hpp"
#include "formats/safetensors/sharded.hpp"
#include "formats/shared/boxes.hpp"
#include "formats/shared/json_checksums.hpp"
#include "formats/shared/progress.hpp"
#include "os/fs/file.hpp"

namespace tenfold::checkpoint {
namespace {

namespace formats = detail::formats;
namespace safetensors = detail::formats::safetensors;

/// Safetensors shards and their index. JSON values are in the index, so the headers of shards have
/// a known size. publish() writes tensors that were not planned into additional shards.
class IndexLayout final : public ShardedLayout {
 public:
  IndexLayout(const Path& path, const TensorDict& outline,
              const std::vector<std::vector<formats::Box>>& boxes,
              const ShardedWriteOptions& options, const std::string& id)
      : path_(path), options_(options), id_(id) {
    const safetensors::ShardedPlan plan = plan_of(outline);
    const OutlineNumbers numbers(outline, &places_);
    for (const safetensors::Shard& shard : plan.shards) {
      ShardFile& file = shards_.emplace_back();
      std::vector<std::vector<formats::Box>> of_shard;
      for (const auto* tensor : shard.ordered) {
        file.tensors.push_back(numbers.of(tensor->leaf));
        of_shard.push_back(boxes[file.tensors.back()]);
      }
      file.header_bytes = header_of(shard, of_shard).size();
      file.size_bytes = file.header_bytes;
      for (const std::size_t number : file.tensors) {
        TensorPlace& place = places_[number];
        place.file = shards_.size() - 1;
        place.offset_bytes = file.size_bytes;
        file.size_bytes += nbytes_of(place.dtype, place.shape);
      }
    }
    replacement_.emplace(path_, plan, options_.durable);
    const std::string marker = marker_text(id_);
    replacement_->index().file().write_at(0, std::as_bytes(std::span(marker)));
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      os::File file = replacement_->create_shard(i);
      file.truncate(shards_[i].size_bytes);
      files_.push_back({replacement_->names()[i], file.reserve()});
      file.write_at(0, std::as_bytes(std::span(marker)));
      file.close_written();
    }
    staging_ = beside(path_, replacement_->index().hidden_name()).string();
  }

  bool is_folder() const noexcept override { return false; }

  void publish(const PublishedTree& tree,
               const std::vector<std::vector<SummedBox>>& boxes) override {
    const OutlineNumbers numbers(tree.outline);
    const auto tensor_of = [&](const Leaf& leaf) -> const PublishedTree::Tensor& {
      return tree.tensors[numbers.of(leaf)];
    };
    safetensors::ShardedPlan plan =
        plan_of(tree.outline, [&](const Leaf& leaf) { return !tensor_of(leaf).number; });
    std::vector<std::string> headers;
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      std::vector<std::size_t> planned;
      for (const auto* tensor : plan.shards[i].ordered) {
        planned.push_back(*tensor_of(tensor->leaf).number);
      }
      if (planned != shards_[i].tensors) refuse_names();
      headers.push_back(filled_header(plan.shards[i], shards_[i], boxes));
      if (headers.back().size() != shards_[i].header_bytes) refuse_names();
    }
    has_begun_ = true;
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      write_header(replacement_->names()[i], headers[i]);
    }
    if (plan.shards.size() > shards_.size()) {
      replacement_->add_value_shards(plan.shards.size() - shards_.size());
    }
    for (std::size_t i = shards_.size(); i < plan.shards.size(); ++i) {
      for (auto& tensor : plan.shards[i].tensors) tensor.leaf = tensor_of(tensor.leaf).leaf;
      write_shard(i, plan.shards[i]);
    }
    replacement_->publish(plan, options_.checksums);
  }

 private:
  struct ShardFile {
    std::vector<std::size_t> tensors;  ///< indices in places_ of the shard's tensors, in file order
    std::uint64_t header_bytes = 0;
    std::uint64_t size_bytes = 0;
  };

  safetensors::ShardedPlan plan_of(
      const TensorDict& tree, const std::function<bool(const Leaf&)>& is_last = nullptr) const {
    return safetensors::plan_shards(tree, true, options_.shard_size_bytes, is_last);
  }

  /// Throws the error for a shard whose tensor names differ from the planned names. The space
  /// reserved for its header fits only the planned names.
  [[noreturn]] void refuse_names() const {
    throw base::unsupported(path_)
        .part("the tree to publish")
        .problem("a tensor in a value has the dotted name of another tensor")
        .expected("different names")
        .remedy("rename the value, or save as one file");
  }

  std::string header_of(const safetensors::Shard& shard,
                        const std::vector<std::vector<formats::Box>>& boxes) const {
    return blank_header(shard.ordered, safetensors::shard_metadata(),
                        options_.checksums ? &boxes : nullptr);
  }

  std::string filled_header(const safetensors::Shard& shard, const ShardFile& file,
                            const std::vector<std::vector<SummedBox>>& boxes) const {
    std::vector<std::vector<formats::Box>> of_shard;
    std::vector<std::uint64_t> sums;
    for (const std::size_t number : file.tensors) {
      of_shard.emplace_back();
      for (const SummedBox& box : boxes[number]) {
        of_shard.back().push_back(box.box);
        sums.push_back(box.checksum);
      }
    }
    std::string header = header_of(shard, of_shard);
    if (options_.checksums) {
      formats::fill_boxes(header, formats::find_checksums(header, safetensors::kBoxesMember), sums);
    }
    return header;
  }

  void write_header(const std::string& name, const std::string& header) {
    os::File file = os::File::open_read_write_at(replacement_->folder(), name);
    if (!has_marker(file, id_)) {
      throw Error::io(EBUSY, file.display())
          .problem("not saved")
          .expected("the shard that this save created")
          .found("a file of another save, which treated this process as dead")
          .remedy("save again");
    }
    file.write_at(0, std::as_bytes(std::span(header)));
    if (options_.durable) file.sync();
    file.close_written();
  }

  void write_shard(std::size_t number, const safetensors::Shard& shard) {
    os::File file = replacement_->create_shard(number);
    formats::Progress progress(nullptr, 0, "");
    safetensors::write_file(file, shard.ordered, safetensors::shard_metadata(),
                            {.durable = options_.durable, .checksums = options_.checksums},
                            progress);
    if (options_.durable) file.sync();
    file.close_written();
  }

  Path path_;
  ShardedWriteOptions options_;
  std::string id_;
  std::vector<ShardFile> shards_;
  std::optional<safetensors::IndexReplacement> replacement_;
};

}  // namespace

std::unique_ptr<ShardedLayout> lay_out_index(const Path& path, const TensorDict& outline,
                                             const std::vector<std::vector<formats::Box>>& boxes,
                                             const ShardedWriteOptions& options,
                                             const std::string& id) {
  return std::make_unique<IndexLayout>(path, outline, boxes, options, id);
}

}  // namespace tenfold::checkpoint
