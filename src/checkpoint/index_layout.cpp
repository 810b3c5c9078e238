#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "checkpoint/shard_ticket.hpp"
#include "checkpoint/sharded_layout.hpp"
#include "formats/safetensors/sharded.hpp"
#include "formats/shared/boxes.hpp"
#include "formats/shared/json_checksums.hpp"
#include "os/fs/file.hpp"

namespace tenfold::checkpoint {
namespace {

namespace formats = detail::formats;
namespace safetensors = detail::formats::safetensors;

/// Shards and their index. JSON values are in the index, so the headers of shards have a known
/// size.
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

  void publish(const TensorDict& tree, const std::vector<std::vector<SummedBox>>& boxes) override {
    require_same_tensors(path_, tree, places_);
    const safetensors::ShardedPlan plan = plan_of(tree);
    if (plan.shards.size() != shards_.size()) refuse_other_tensors(path_);
    std::vector<std::string> headers;
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      headers.push_back(filled_header(plan.shards[i], shards_[i], boxes));
      if (headers.back().size() != shards_[i].header_bytes) refuse_other_tensors(path_);
    }
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      write_header(replacement_->names()[i], headers[i]);
    }
    replacement_->publish(plan, options_.checksums);
  }

 private:
  struct ShardFile {
    std::vector<std::size_t> tensors;  ///< numbers, in file order
    std::uint64_t header_bytes = 0;
    std::uint64_t size_bytes = 0;
  };

  safetensors::ShardedPlan plan_of(const TensorDict& tree) const {
    return safetensors::plan_shards(tree, true, options_.shard_size_bytes);
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
    if (of_shard.size() != shard.ordered.size()) refuse_other_tensors(path_);
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
          .found("a file of another save, which considered this process dead")
          .remedy("save again");
    }
    file.write_at(0, std::as_bytes(std::span(header)));
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
