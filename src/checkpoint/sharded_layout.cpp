#include "checkpoint/sharded_layout.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "core/tensor/leaf_bytes.hpp"
#include "core/tree/leaf_source.hpp"
#include "core/tree/node.hpp"
#include "core/tree/outline_leaf.hpp"
#include "formats/folder/checksums.hpp"
#include "formats/folder/inventory.hpp"
#include "formats/folder/plan.hpp"
#include "formats/folder/writer.hpp"
#include "formats/safetensors/file.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "formats/shared/json_checksums.hpp"
#include "formats/shared/storable.hpp"
#include "io/check_supported.hpp"
#include "io/registry.hpp"
#include "os/fs/file.hpp"

namespace tenfold::checkpoint {
namespace {

namespace formats = detail::formats;
namespace folder = detail::formats::folder;
namespace safetensors = detail::formats::safetensors;

constexpr std::size_t kCopiedPieceBytes = std::size_t{4} << 20;
constexpr std::uint64_t kHeaderAlignment = 64;
constexpr std::uint64_t kHeaderLengthBytes = 8;  ///< size of the length field before the header

TensorDict outline_of(const TensorDict& tree, const std::string& prefix, std::size_t depth) {
  const NodeInfo& info = tree.info();
  if (info.kind == NodeKind::lazy_stack || info.kind == NodeKind::sparse ||
      info.kind == NodeKind::opaque) {
    throw formats::refuse_key(prefix)
        .expected("a node that several processes can write (a dict, a list, a tuple, a TensorDict)")
        .found("one of kind ", to_string(info.kind));
  }
  if (depth > kMaxDepth) {
    throw base::invalid_argument()
        .part("key ", base::quote(prefix))
        .problem("nodes nested too deep")
        .expected("at most ", kMaxDepth, " levels")
        .remedy("check whether a node contains itself");
  }
  TensorDict outline(info);
  tree.for_each([&](const std::string& key, const TensorDict::Item& item) {
    const std::string path = prefix.empty() ? key : prefix + "." + key;
    if (const auto* leaf = std::get_if<Leaf>(&item)) {
      if (leaf->is_nested()) {
        throw formats::refuse_key(path).expected("a dense tensor").found("a nested one");
      }
      Leaf empty = outline_leaf(leaf->dtype(), leaf->shape());
      empty.mark_unbatched(leaf->is_unbatched());
      outline.set(key, TensorDict::Item(std::move(empty)));
    } else if (const auto* child = std::get_if<TensorDict>(&item)) {
      outline.set(key, outline_of(*child, path, depth + 1));
    } else {
      outline.set(key, item);
    }
  });
  return outline;
}

std::uint64_t bytes_of(const std::vector<TensorPlace>& places) {
  std::uint64_t total = 0;
  for (const TensorPlace& place : places) total += nbytes_of(place.dtype, place.shape);
  return total;
}

/// Writes a whole tensor that was not planned: only the published tree has it. Returns the boxes of
/// the tensor, each contiguous and in file order, with their checksums.
std::vector<SummedBox> write_whole(os::File& file, std::uint64_t offset_bytes, const Leaf& leaf) {
  std::vector<SummedBox> boxes;
  std::vector<std::byte> scratch(kCopiedPieceBytes);
  std::uint64_t begin = 0;
  const formats::Box whole{Shape(leaf.shape().size(), 0), leaf.shape()};
  for (formats::Box& box : formats::split_box(leaf.shape(), itemsize(leaf.dtype()), whole)) {
    const std::uint64_t end = begin + nbytes_of(leaf.dtype(), box.sizes);
    base::Xxh3Stream stream;
    for_each_piece(leaf, begin, end, scratch, [&](std::span<const std::byte> piece) {
      stream.update(piece);
      file.write_at(offset_bytes + begin, piece);
      begin += piece.size();
    });
    boxes.push_back({std::move(box), stream.digest()});
  }
  return boxes;
}

/// One safetensors file.
class FileLayout final : public ShardedLayout {
 public:
  FileLayout(const Path& path, const TensorDict& outline,
             const std::vector<std::vector<formats::Box>>& boxes,
             const ShardedWriteOptions& options, const std::string& id)
      : path_(path), options_(options) {
    const safetensors::FilePlan plan = safetensors::plan_file(outline, true);
    const OutlineNumbers numbers(outline, &places_);
    for (const auto* tensor : plan.tensors) order_.push_back(numbers.of(tensor->leaf));
    if (order_.size() != places_.size()) refuse_other_tensors(path_);
    std::vector<std::vector<formats::Box>> ordered;
    for (const std::size_t number : order_) ordered.push_back(boxes[number]);
    const std::uint64_t header_bytes = header_of(plan, ordered).size();
    const std::uint64_t most = safetensors::kMaxHeaderBytes / kHeaderAlignment * kHeaderAlignment;
    const std::uint64_t room = std::min(options.value_bytes, most - std::min(most, header_bytes));
    reserved_bytes_ = (header_bytes + room) / kHeaderAlignment * kHeaderAlignment;
    std::uint64_t offset = reserved_bytes_;
    for (const std::size_t number : order_) {
      places_[number].offset_bytes = offset;
      offset += nbytes_of(places_[number].dtype, places_[number].shape);
    }
    replacement_.emplace(path_, offset);
    os::File& file = replacement_->file();
    file.truncate(offset);
    files_.push_back({"", file.reserve()});
    const std::string marker = marker_text(id);
    file.write_at(0, std::as_bytes(std::span(marker)));
    staging_ = beside(path_, replacement_->hidden_name()).string();
  }

  bool is_folder() const noexcept override { return false; }

  void publish(const PublishedTree& tree,
               const std::vector<std::vector<SummedBox>>& boxes) override {
    const safetensors::FilePlan plan = plan_of(tree);
    const OutlineNumbers numbers(tree.outline);
    std::vector<std::vector<formats::Box>> ordered;
    std::vector<std::uint64_t> sums;
    const auto add = [&](const std::vector<SummedBox>& of_tensor) {
      ordered.emplace_back();
      for (const SummedBox& box : of_tensor) {
        ordered.back().push_back(box.box);
        sums.push_back(box.checksum);
      }
    };
    for (const std::size_t number : order_) add(boxes[number]);
    os::File& file = replacement_->file();
    std::uint64_t end = reserved_bytes_ + bytes_of(places_);
    for (std::size_t i = order_.size(); i < plan.tensors.size(); ++i) {
      const Leaf& leaf = tree.tensors[numbers.of(plan.tensors[i]->leaf)].leaf;
      add(write_whole(file, end, leaf));
      end += leaf.nbytes();
    }
    if (file.size_bytes() != end) file.truncate(end);  // a failed publish() may have written more
    std::string header = header_of(plan, ordered);
    const bool fits = header.size() <= reserved_bytes_ || insert_space(header.size());
    if (fits) safetensors::pad_header(header, reserved_bytes_);
    if (options_.checksums) {
      formats::fill_boxes(header, formats::find_checksums(header, safetensors::kBoxesMember), sums);
    }
    if (fits) {
      file.write_at(0, std::as_bytes(std::span(header)));
      replacement_->publish(options_.durable);
    } else {
      publish_copy(header);
    }
  }

 private:
  std::string header_of(const safetensors::FilePlan& plan,
                        const std::vector<std::vector<formats::Box>>& boxes) const {
    return blank_header(plan.tensors, plan.plan.metadata, options_.checksums ? &boxes : nullptr);
  }

  /// Plans the header: first the tensors of the outline at their planned positions, then those
  /// tensors that only the published tree has.
  safetensors::FilePlan plan_of(const PublishedTree& tree) const {
    safetensors::FilePlan file{safetensors::make_plan(tree.outline, true), {}};
    const OutlineNumbers numbers(tree.outline);
    std::vector<const safetensors::Plan::Tensor*> planned(places_.size());
    std::vector<const safetensors::Plan::Tensor*> others;
    for (const safetensors::Plan::Tensor& tensor : file.plan.tensors) {
      const auto number = tree.tensors[numbers.of(tensor.leaf)].number;
      if (number) {
        planned[*number] = &tensor;
      } else {
        others.push_back(&tensor);
      }
    }
    for (const std::size_t number : order_) file.tensors.push_back(planned[number]);
    file.tensors.insert(file.tensors.end(), others.begin(), others.end());
    if (file.plan.flat) {
      std::vector<std::string_view> names;
      for (const auto* tensor : file.tensors) names.push_back(tensor->name);
      safetensors::add_order(file.plan, names);
    }
    return file;
  }

  /// Inserts space for a header of `header_bytes`, without copying the data. Returns false if the
  /// file system cannot do this, if its block size is not a multiple of the header's alignment, or
  /// if the header with its padding would exceed the limit.
  bool insert_space(std::uint64_t header_bytes) {
    os::File& file = replacement_->file();
    const std::uint64_t block = file.block_bytes();
    const std::uint64_t added = (header_bytes - reserved_bytes_ + block - 1) / block * block;
    if (added % kHeaderAlignment != 0 ||
        reserved_bytes_ + added - kHeaderLengthBytes > safetensors::kMaxHeaderBytes) {
      return false;
    }
    try {
      if (!file.insert_hole(0, added)) return false;
    } catch (...) {
      has_begun_ = true;  // some of the data may have moved
      throw;
    }
    reserved_bytes_ += added;
    return true;
  }

  /// Copies the data to a new file with a larger header. Used if the header, which contains the
  /// JSON values, exceeds the reserved space and insert_space() returned false.
  void publish_copy(const std::string& header) {
    const std::uint64_t end = replacement_->file().size_bytes();
    const std::uint64_t data_bytes = end - reserved_bytes_;
    formats::FileReplacement copy(path_, header.size() + data_bytes);
    copy.file().write_at(0, std::as_bytes(std::span(header)));
    std::vector<std::byte> piece(
        static_cast<std::size_t>(std::min<std::uint64_t>(kCopiedPieceBytes, data_bytes)));
    for (std::uint64_t done = 0; done < data_bytes; done += piece.size()) {
      piece.resize(
          static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), data_bytes - done)));
      replacement_->file().read_at(reserved_bytes_ + done, piece);
      copy.file().write_at(header.size() + done, piece);
    }
    has_begun_ = true;
    replacement_.reset();
    copy.publish(options_.durable);
  }

  Path path_;
  ShardedWriteOptions options_;
  std::vector<std::size_t> order_;  ///< indices in places_ of the tensors, in file order
  std::uint64_t reserved_bytes_ = 0;
  std::optional<formats::FileReplacement> replacement_;
};

/// A folder in tensordict's format.
class FolderLayout final : public ShardedLayout {
 public:
  FolderLayout(const Path& path, const TensorDict& outline, const ShardedWriteOptions& options,
               const std::string& id)
      : path_(path), options_(options) {
    const folder::Plan plan = folder::plan_tree(outline);
    const OutlineNumbers numbers(outline, &places_);
    folder::require_replaceable(path_);
    replacement_.emplace(path_, bytes_of(places_), folder::foreign_in);
    os::Directory& root = replacement_->folder();
    const std::string marker = marker_text(id);
    os::File file = os::File::create_at(root, std::string(kStagingMarker));
    file.write_at(0, std::as_bytes(std::span(marker)));
    file.close_written();
    // The folders of JSON values and of nodes without tensors are not created yet: the published
    // tree may lack these entries.
    make_folders(plan, folders_of_tensors(plan));
    for (const folder::Plan::File& planned : plan.files) {
      if (!planned.is_leaf) continue;
      os::File leaf = os::File::create_at(folder_of(plan, planned), planned.name);
      leaf.truncate(planned.size_bytes);
      places_[numbers.of(planned.leaf)].file = files_.size();
      files_.push_back({plan.path_of(planned), leaf.reserve()});
    }
    staging_ = beside(path_, replacement_->hidden_name()).string();
  }

  bool is_folder() const noexcept override { return true; }

  void publish(const PublishedTree& tree,
               const std::vector<std::vector<SummedBox>>& boxes) override {
    const folder::Plan plan = folder::plan_tree(tree.outline);
    const OutlineNumbers numbers(tree.outline);
    require_same(plan, numbers, tree);
    folder::warn_of_unloadable(plan, path_);
    has_begun_ = true;
    os::Directory& root = replacement_->folder();
    make_folders(plan, std::vector<bool>(plan.folders.size(), true));
    std::vector<formats::ChecksumLine> lines;
    for (const folder::Plan::File& planned : plan.files) {
      const std::string path = plan.path_of(planned);
      if (!planned.is_leaf) {
        write_text(folder_of(plan, planned), planned.name, planned.text);
        add_lines(path, planned.text, lines);
        continue;
      }
      const PublishedTree::Tensor& tensor = tree.tensors[numbers.of(planned.leaf)];
      add_lines(path, tensor.leaf,
                tensor.number ? boxes[*tensor.number]
                              : write_leaf(folder_of(plan, planned), planned.name, tensor.leaf),
                lines);
    }
    if (options_.checksums) {
      write_text(root, std::string(formats::kChecksumsName), formats::checksums_text(lines));
    }
    root.remove_file(std::string(kStagingMarker));
    if (options_.durable) {
      // FolderReplacement syncs the root.
      for (std::size_t i = 1; i < plan.folders.size(); ++i) open_folder(plan, i).sync();
    }
    folder::publish_folder(*replacement_, options_.durable);
  }

 private:
  os::Directory open_folder(const folder::Plan& plan, std::size_t number) {
    if (number == 0) return replacement_->folder().duplicate();
    return os::Directory::open_at(open_folder(plan, plan.folders[number].parent),
                                  plan.folders[number].name);
  }

  /// Returns the folder of a file. Keeps this folder open, because files are sorted by folder.
  os::Directory& folder_of(const folder::Plan& plan, const folder::Plan::File& file) {
    if (!open_.valid() || open_number_ != file.folder) {
      open_ = open_folder(plan, file.folder);
      open_number_ = file.folder;
    }
    return open_;
  }

  /// Returns, for each folder, whether it or a folder below it contains the file of a tensor.
  /// Always false for the root, which exists.
  static std::vector<bool> folders_of_tensors(const folder::Plan& plan) {
    std::vector<bool> found(plan.folders.size(), false);
    for (const folder::Plan::File& file : plan.files) {
      if (!file.is_leaf) continue;
      for (std::size_t i = file.folder; i != 0 && !found[i]; i = plan.folders[i].parent) {
        found[i] = true;
      }
    }
    return found;
  }

  /// Creates the missing folders of `plan` for which `wanted` is true.
  void make_folders(const folder::Plan& plan, const std::vector<bool>& wanted) {
    open_.close();
    for (std::size_t i = 1; i < plan.folders.size(); ++i) {
      if (!wanted[i]) continue;
      os::Directory parent = open_folder(plan, plan.folders[i].parent);
      if (!parent.entry_info(plan.folders[i].name)) {
        parent.create_directory(plan.folders[i].name);
      }
    }
  }

  void write_text(os::Directory& into, const std::string& name, const std::string& text) const {
    os::File file = os::File::create_at(into, name);
    file.write_at(0, std::as_bytes(std::span(text)));
    if (options_.durable) file.sync();
    file.close_written();
  }

  std::vector<SummedBox> write_leaf(os::Directory& into, const std::string& name,
                                    const Leaf& leaf) const {
    os::File file = os::File::create_at(into, name);
    std::vector<SummedBox> boxes = write_whole(file, 0, leaf);
    if (options_.durable) file.sync();
    file.close_written();
    return boxes;
  }

  void require_same(const folder::Plan& plan, const OutlineNumbers& numbers,
                    const PublishedTree& tree) const {
    std::size_t num_files = 0;
    for (const folder::Plan::File& planned : plan.files) {
      if (!planned.is_leaf) continue;
      const auto number = tree.tensors[numbers.of(planned.leaf)].number;
      if (!number) continue;
      ++num_files;
      const TensorPlace& place = places_[*number];
      if (place.file >= files_.size() || files_[place.file].path != plan.path_of(planned)) {
        refuse_other_tensors(path_);
      }
    }
    if (num_files != files_.size()) refuse_other_tensors(path_);
  }

  void add_lines(const std::string& path, const std::string& text,
                 std::vector<formats::ChecksumLine>& lines) const {
    if (!options_.checksums) return;
    base::BlockSums sums;
    sums.add(std::as_bytes(std::span(text)));
    formats::append_lines(lines, path, text.size(), sums.checksums());
  }

  void add_lines(const std::string& path, const Leaf& leaf, const std::vector<SummedBox>& boxes,
                 std::vector<formats::ChecksumLine>& lines) const {
    if (!options_.checksums) return;
    for (const SummedBox& box : boxes) {
      auto bytes = formats::byte_box(leaf.shape(), itemsize(leaf.dtype()), box.box);
      lines.push_back(formats::line_of_box(box.checksum, std::move(*bytes), path));
    }
  }

  Path path_;
  ShardedWriteOptions options_;
  std::optional<formats::FolderReplacement> replacement_;
  os::Directory open_;
  std::size_t open_number_ = 0;
};

}  // namespace

TensorDict outline_of(const TensorDict& tree) { return outline_of(tree, "", 0); }

OutlineNumbers::OutlineNumbers(const TensorDict& outline, std::vector<TensorPlace>* places) {
  outline.for_each_leaf([&](const KeyPath& path, const TensorDict::Item& item) {
    const auto* leaf = std::get_if<Leaf>(&item);
    if (leaf == nullptr) return;
    numbers_.emplace(source_of(*leaf).get(), numbers_.size());
    if (places == nullptr) return;
    places->push_back({base::quote(dotted(path)), leaf->dtype(), leaf->shape(), 0, 0});
  });
}

std::size_t OutlineNumbers::of(const Leaf& leaf) const {
  return numbers_.at(source_of(leaf).get());
}

void refuse_other_tensors(const Path& path) {
  throw base::invalid_argument(path)
      .part("the tree to publish")
      .expected("the tensors of the tree that the writer was created with, under the same keys")
      .found("other tensors or keys");
}

std::string blank_header(const std::vector<const safetensors::Plan::Tensor*>& tensors,
                         safetensors::Metadata metadata,
                         const std::vector<std::vector<formats::Box>>* boxes) {
  if (boxes != nullptr) {
    std::vector<Shape> shapes;
    for (const auto* tensor : tensors) shapes.push_back(tensor->leaf.shape());
    metadata.insert_or_assign(std::string(safetensors::kBoxesMember),
                              formats::blank_boxes_text(*boxes, shapes));
  }
  return safetensors::header_of(tensors, metadata);
}

Path beside(const Path& path, const std::string& name) {
  return os::absolute(os::resolve_link(path)).parent_path() / name;
}

std::unique_ptr<ShardedLayout> lay_out(const Path& path, const TensorDict& outline,
                                       const std::vector<std::vector<formats::Box>>& boxes,
                                       const ShardedWriteOptions& options, const std::string& id) {
  const formats::Format& format = format_for_saving(path, options.format);
  const bool is_index = &format == &safetensors::kShardedFormat;
  if (!is_index && &format != &safetensors::kFormat && &format != &folder::kFormat) {
    throw base::invalid_argument(path.string())
        .expected(
            "a name that ends in \".safetensors\" or \".safetensors.index.json\", or a folder, "
            "because only these can be written by several processes")
        .found("one of format ", base::quote(format.name));
  }
  refuse_shard_size(format, path, options.shard_size_bytes);
  formats::refuse_existing(path, options.overwrite);
  check_supported(outline, format, path.string());
  std::unique_ptr<ShardedLayout> layout;
  with_path(path, [&] {
    if (is_index) {
      layout = lay_out_index(path, outline, boxes, options, id);
    } else if (&format == &safetensors::kFormat) {
      layout = std::make_unique<FileLayout>(path, outline, boxes, options, id);
    } else {
      layout = std::make_unique<FolderLayout>(path, outline, options, id);
    }
  });
  return layout;
}

}  // namespace tenfold::checkpoint
