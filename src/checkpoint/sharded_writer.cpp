#include <tenfold/sharded_writer.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>
#include <tenfold/io.hpp>

#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "checkpoint/shard_ticket.hpp"
#include "checkpoint/sharded_layout.hpp"
#include "formats/shared/boxes.hpp"
#include "formats/shared/commit.hpp"
#include "io/check_supported.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "os/process.hpp"

namespace tenfold {
namespace {

using checkpoint::PlannedShard;
using checkpoint::PublishedTree;
using checkpoint::ShardReceipt;
using checkpoint::ShardTicket;
using checkpoint::SummedBox;
using checkpoint::TensorPlace;
using detail::formats::Box;

std::string text_of(const ShardBox& shard) {
  return "at " + base::list_text(shard.offsets) + " of shape " + base::list_text(shard.sizes) +
         " of rank " + std::to_string(shard.rank);
}

bool has_elements(const ShardBox& shard) {
  return std::ranges::find(shard.sizes, 0) == shard.sizes.end();
}

/// Marks duplicates among the boxes of one tensor as not written, and checks that the other boxes
/// cover each element exactly once.
class Cover {
 public:
  Cover(const std::string& path, const std::string& key, const Shape& shape)
      : where_(path, "tensor " + key), shape_(shape) {}

  void add(PlannedShard& planned) {
    const ShardBox& shard = planned.shard;
    bool fits = shard.offsets.size() == shape_.size() && shard.sizes.size() == shape_.size();
    for (std::size_t d = 0; fits && d < shape_.size(); ++d) {
      fits = shard.offsets[d] >= 0 && shard.sizes[d] >= 0 && shard.offsets[d] <= shape_[d] &&
             shard.sizes[d] <= shape_[d] - shard.offsets[d];
    }
    if (!fits) {
      throw fail()
          .problem("a box exceeds the tensor")
          .expected("one within ", base::list_text(shape_))
          .found("one ", text_of(shard));
    }
    if (has_elements(shard)) shards_.push_back(&planned);
  }

  void finish() {
    // If boxes are equal, the box that was added first is written.
    std::ranges::stable_sort(shards_, {}, [](const PlannedShard* planned) {
      return std::pair(planned->shard.offsets, planned->shard.sizes);
    });
    const auto equal = [](const PlannedShard* a, const PlannedShard* b) {
      return a->shard.offsets == b->shard.offsets && a->shard.sizes == b->shard.sizes;
    };
    for (std::size_t i = 1; i < shards_.size(); ++i) {
      if (equal(shards_[i - 1], shards_[i])) shards_[i]->is_written = false;
    }
    std::erase_if(shards_, [](const PlannedShard* planned) { return !planned->is_written; });
    require_disjoint();
    require_whole();
  }

 private:
  Error fail() const { return base::invalid_argument(where_); }

  void require_disjoint() const {
    if (shape_.empty()) return;  // all boxes of a scalar are equal
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      const ShardBox& first = shards_[i]->shard;
      for (std::size_t j = i + 1; j < shards_.size(); ++j) {
        const ShardBox& second = shards_[j]->shard;
        // Boxes are sorted by offsets[0], so no later box overlaps `first` either.
        if (second.offsets[0] >= first.offsets[0] + first.sizes[0]) break;
        bool overlap = true;
        for (std::size_t d = 0; overlap && d < shape_.size(); ++d) {
          overlap = first.offsets[d] < second.offsets[d] + second.sizes[d] &&
                    second.offsets[d] < first.offsets[d] + first.sizes[d];
        }
        if (overlap) {
          throw fail()
              .problem("boxes overlap")
              .expected("each element in one of them")
              .found("boxes ", text_of(first), " and ", text_of(second));
        }
      }
    }
  }

  void require_whole() const {
    const std::int64_t expected = numel_of(shape_);
    std::int64_t found = 0;
    for (const PlannedShard* planned : shards_) found += numel_of(planned->shard.sizes);
    if (found == expected) return;
    constexpr std::size_t kNamed = 4;
    std::string named;
    for (std::size_t i = 0; i < std::min(kNamed, shards_.size()); ++i) {
      named += (i == 0 ? ": " : ", ") + text_of(shards_[i]->shard);
    }
    if (shards_.size() > kNamed) named += ", ...";
    throw fail()
        .problem("elements are in no box")
        .expected("boxes of ", expected, " elements in all")
        .found(found, " in ", shards_.size(), " boxes", named);
  }

  base::Where where_;
  const Shape& shape_;
  std::vector<PlannedShard*> shards_;
};

/// Returns the keys, dtypes and shapes of the tensors of an outline, without files and offsets.
std::vector<TensorPlace> outline_tensors(const TensorDict& outline) {
  std::vector<TensorPlace> tensors;
  outline.for_each_leaf([&](const KeyPath& path, const TensorDict::Item& item) {
    if (const auto* leaf = std::get_if<Leaf>(&item)) {
      tensors.push_back({base::quote(dotted(path)), leaf->dtype(), leaf->shape(), 0, 0});
    }
  });
  return tensors;
}

/// A hidden folder next to the target, through which ranks pass values to the coordinator.
class ValuesFolder {
 public:
  ValuesFolder(const Path& path, const std::string& id)
      : parent_(os::open_parent(os::resolve_link(path), true)),
        sibling_(detail::formats::Sibling::take(parent_.directory, parent_.name)),
        path_(checkpoint::beside(path, sibling_.name())) {
    constexpr std::uint32_t kOwnersFolder = 0700;  // the replaced version may be private
    parent_.directory.create_directory(sibling_.name(), kOwnersFolder);
    const std::string marker = checkpoint::marker_text(id);
    os::File file = os::File::create_at(os::Directory::open_at(parent_.directory, sibling_.name()),
                                        std::string(checkpoint::kStagingMarker));
    file.write_at(0, std::as_bytes(std::span(marker)));
    file.close_written();
  }
  ValuesFolder(const ValuesFolder&) = delete;
  ValuesFolder& operator=(const ValuesFolder&) = delete;

  const Path& path() const noexcept { return path_; }

 private:
  os::Parent parent_;  // declared before sibling_, which refers to it
  detail::formats::Sibling sibling_;
  Path path_;
};

}  // namespace

class ShardedWriter::State {
 public:
  State(const Path& path, const TensorDict& tree, std::vector<ShardBox> boxes,
        const ShardedWriteOptions& options)
      : path_(path.string()), options_(options), id_(base::hex16(os::random_number())) {
    with_path(path, [&] { outline_ = checkpoint::outline_of(tree); });
    for (ShardBox& box : boxes) shards_.push_back({std::move(box), true, {}});
    outline_.for_each_leaf([&](const KeyPath& keys, const TensorDict::Item& item) {
      if (std::holds_alternative<Leaf>(item)) paths_.push_back(keys);
    });
    require_cover(outline_tensors(outline_));
    std::vector<std::vector<Box>> parts(tensors_.size());
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      PlannedShard& planned = shards_[i];
      shards_of_[planned.shard.rank].push_back(i);
      if (!planned.is_written) continue;
      writers_.insert(planned.shard.rank);
      const TensorPlace& tensor = tensors_[planned.shard.tensor];
      for (Box& part :
           detail::formats::split_box(is_by_shard() ? planned.shard.sizes : tensor.shape,
                                      itemsize(tensor.dtype), box_of(planned.shard))) {
        parts[planned.shard.tensor].push_back(part);
        planned.parts.push_back({std::move(part), 0});
      }
    }
    layout_ = is_by_shard() ? checkpoint::lay_out_shards(path, outline_, shards_, options_, id_)
                            : checkpoint::lay_out(path, outline_, parts, options_, id_);
    if (options_.accepts_values && !is_by_shard()) values_.emplace(path, id_);
  }

  std::string ticket(int rank) const {
    ShardTicket ticket;
    ticket.id = id_;
    ticket.boot = boot_;
    ticket.host = os::host_name();
    ticket.staging = layout().staging();
    if (values_) ticket.values = values_->path().string();
    ticket.is_folder = layout().is_folder();
    ticket.durable = options_.durable;
    ticket.checksums = has_sums();
    ticket.are_crc32 = options_.layout == ShardLayout::torch;
    ticket.shares_files = !is_by_shard();
    ticket.rank = rank;
    // A ticket contains only the tensors and files of its rank, with their own indices from 0.
    std::map<std::size_t, std::size_t> tensors;
    std::map<std::size_t, std::size_t> files;
    const std::vector<std::size_t> no_shards;
    const auto of_rank = shards_of_.find(rank);
    for (const std::size_t i : of_rank == shards_of_.end() ? no_shards : of_rank->second) {
      const PlannedShard& planned = shards_[i];
      const auto [found, is_new] = tensors.emplace(place_of(i), tensors.size());
      if (is_new) {
        TensorPlace place = layout().places()[place_of(i)];
        if (place.file < layout().files().size()) {
          const auto [file, is_new_file] = files.emplace(place.file, files.size());
          if (is_new_file) ticket.files.push_back(layout().files()[place.file]);
          place.file = file->second;
        } else {
          place.file = 0;  // not used: the tensor has no file
        }
        ticket.tensors.push_back(std::move(place));
      }
      ticket.boxes.push_back({found->second, planned.is_written, box_of(planned.shard)});
    }
    ticket.num_ranks = static_cast<int>(writers_.size() + (writers_.contains(rank) ? 0 : 1));
    return ticket.to_text();
  }

  void publish(std::span<const std::string> receipts, const TensorDict* tree) {
    if (layout().has_begun()) {
      throw base::invalid_argument(path_)
          .expected("a save that did not fail while it was published")
          .found("a save that failed")
          .remedy("save again");
    }
    take(receipts);
    std::vector<std::vector<SummedBox>> boxes(layout().places().size());
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      auto& of_place = boxes[place_of(i)];
      of_place.insert(of_place.end(), shards_[i].parts.begin(), shards_[i].parts.end());
    }
    with_path(path_, [&] {
      layout_->publish(tree == nullptr ? published(outline_, outline_)
                                       : published(*tree, checkpoint::outline_of(*tree)),
                       boxes);
    });
    layout_.reset();
    values_.reset();
  }

  TensorDict values(int rank) const {
    if (!values_) {
      throw base::invalid_argument(path_)
          .expected("a save in the plain layout that accepts values, and is not published yet")
          .found("a save that does not accept values, or is published");
    }
    return load(values_->path() / checkpoint::values_name(rank, layout().is_folder()),
                {.verify = true});
  }

 private:
  /// Finds the planned tensors in the tree to publish, by their keys. Throws if a planned tensor is
  /// missing, is in another order or has another dtype or shape, or if the tree has additional
  /// tensors and is_by_shard().
  PublishedTree published(const TensorDict& tree, TensorDict outline) const {
    PublishedTree made{std::move(outline), {}};
    std::size_t next = 0;
    tree.for_each_leaf([&](const KeyPath& path, const TensorDict::Item& item) {
      const auto* leaf = std::get_if<Leaf>(&item);
      if (leaf == nullptr) return;
      const bool is_planned = next < paths_.size() && paths_[next] == path;
      made.tensors.push_back({*leaf, is_planned ? std::optional(next) : std::nullopt});
      if (!is_planned) return;
      const TensorPlace& planned = tensors_[next++];
      if (leaf->dtype() != planned.dtype || leaf->shape() != planned.shape) {
        checkpoint::refuse_other_tensors(path_);
      }
    });
    if (next < paths_.size() || (is_by_shard() && made.tensors.size() > next)) {
      checkpoint::refuse_other_tensors(path_);
    }
    return made;
  }

  const checkpoint::ShardedLayout& layout() const {
    if (!layout_) {
      throw base::invalid_argument(path_)
          .expected("a save that is not published yet")
          .found("a published one");
    }
    return *layout_;
  }

  /// Returns true if each shard is stored as a separate tensor.
  bool is_by_shard() const noexcept { return options_.layout != ShardLayout::plain; }
  bool has_sums() const noexcept {
    return options_.checksums || options_.layout == ShardLayout::torch;
  }
  std::size_t place_of(std::size_t shard) const {
    return is_by_shard() ? shard : shards_[shard].shard.tensor;
  }
  /// Returns the bounds of a shard within the stored tensor, which is the shard itself if
  /// is_by_shard().
  Box box_of(const ShardBox& shard) const {
    return {is_by_shard() ? Shape(shard.offsets.size(), 0) : shard.offsets, shard.sizes};
  }

  void require_cover(std::vector<TensorPlace> tensors) {
    tensors_ = std::move(tensors);
    std::vector<Cover> covers;
    covers.reserve(tensors_.size());
    for (const TensorPlace& tensor : tensors_) covers.emplace_back(path_, tensor.key, tensor.shape);
    for (PlannedShard& planned : shards_) {
      if (planned.shard.tensor >= tensors_.size() || planned.shard.rank < 0) {
        throw base::invalid_argument(path_)
            .part("box ", text_of(planned.shard))
            .expected("a tensor index below ", tensors_.size(), ", and a rank of 0 or more")
            .found("tensor index ", planned.shard.tensor, " and rank ", planned.shard.rank);
      }
      covers[planned.shard.tensor].add(planned);
    }
    for (Cover& cover : covers) cover.finish();
  }

  /// Collects the checksums of all parts from the receipts.
  void take(std::span<const std::string> receipts) {
    std::map<int, ShardReceipt> by_rank;
    for (const std::string& text : receipts) {
      auto receipt = ShardReceipt::parse(text);
      if (!receipt || receipt->id != id_) {
        throw base::invalid_argument(path_)
            .part("receipt")
            .expected("a receipt of save ", id_)
            .found((receipt ? "a receipt of save " + receipt->id : std::string("another string")));
      }
      by_rank.insert_or_assign(receipt->rank, std::move(*receipt));
    }
    std::map<int, std::pair<std::size_t, std::size_t>> used;  // number of boxes and checksums
    for (PlannedShard& planned : shards_) {
      const int rank = planned.shard.rank;
      const auto receipt = by_rank.find(rank);
      if (receipt == by_rank.end()) {
        if (!planned.is_written || planned.parts.empty()) continue;
        throw base::invalid_argument(path_)
            .part("tensor ", tensors_[planned.shard.tensor].key)
            .expected("a receipt for its box ", text_of(planned.shard))
            .found("none");
      }
      auto& [num_boxes, num_sums] = used[rank];
      ++num_boxes;
      if (!has_sums()) continue;
      for (SummedBox& part : planned.parts) {
        if (num_sums == receipt->second.checksums.size()) refuse_receipt(rank);
        part.checksum = receipt->second.checksums[num_sums++];
      }
    }
    for (const auto& [rank, counts] : used) {
      const ShardReceipt& receipt = by_rank.at(rank);
      if (receipt.num_boxes != counts.first || receipt.checksums.size() != counts.second) {
        refuse_receipt(rank);
      }
    }
  }

  [[noreturn]] void refuse_receipt(int rank) const {
    throw base::invalid_argument(path_)
        .part("receipt of rank ", rank)
        .expected("the checksums of all its boxes")
        .found("another number of boxes or checksums");
  }

  std::string path_;
  ShardedWriteOptions options_;
  std::string id_;
  std::string boot_ = checkpoint::boot_text();  ///< boot ID of the coordinator's host
  TensorDict outline_;
  std::vector<KeyPath> paths_;  ///< paths of the tensors
  std::vector<PlannedShard> shards_;
  std::map<int, std::vector<std::size_t>> shards_of_;  ///< indices in shards_, by rank
  std::set<int> writers_;                              ///< the ranks that write a shard
  std::vector<TensorPlace> tensors_;                   ///< keys, dtypes and shapes of the tensors
  std::unique_ptr<checkpoint::ShardedLayout> layout_;
  std::optional<ValuesFolder> values_;
};

ShardedWriter::ShardedWriter(const Path& path, const TensorDict& tree, std::vector<ShardBox> boxes,
                             const ShardedWriteOptions& options)
    : state_(std::make_unique<State>(path, tree, std::move(boxes), options)) {}
ShardedWriter::ShardedWriter(ShardedWriter&&) noexcept = default;
ShardedWriter& ShardedWriter::operator=(ShardedWriter&&) noexcept = default;
ShardedWriter::~ShardedWriter() = default;

std::string ShardedWriter::ticket(int rank) const { return state_->ticket(rank); }

TensorDict ShardedWriter::values(int rank) const { return state_->values(rank); }

void ShardedWriter::publish(std::span<const std::string> receipts) {
  state_->publish(receipts, nullptr);
}

void ShardedWriter::publish(std::span<const std::string> receipts, const TensorDict& tree) {
  state_->publish(receipts, &tree);
}

}  // namespace tenfold
