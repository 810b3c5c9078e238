#include "checkpoint/sharded_layout.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "core/tree/leaf_source.hpp"
#include "core/tree/node.hpp"
#include "core/tree/outline_leaf.hpp"
#include "formats/folder/inventory.hpp"
#include "formats/folder/plan.hpp"
#include "formats/folder/writer.hpp"
#include "formats/safetensors/file.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "formats/shared/json_checksums.hpp"
#include "io/check_supported.hpp"
#include "io/registry.hpp"

namespace tenfold::checkpoint {
namespace {

namespace formats = detail::formats;
namespace folder = detail::formats::folder;
namespace safetensors = detail::formats::safetensors;

constexpr std::size_t kCopiedPieceBytes = std::size_t{4} << 20;
constexpr std::uint64_t kHeaderAlignment = 64;

Error refuse_key(const std::string& key) {
  return base::unsupported().part("key ", base::quote(key));
}

TensorDict outline_of(const TensorDict& tree, const std::string& prefix, std::size_t depth) {
  const NodeInfo& info = tree.info();
  if (info.kind == NodeKind::lazy_stack || info.kind == NodeKind::sparse ||
      info.kind == NodeKind::opaque) {
    throw refuse_key(prefix)
        .expected("a node that several processes can write (a dict, a list, a tuple, a TensorDict)")
        .found("a ", to_string(info.kind));
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
        throw refuse_key(path).expected("a dense tensor").found("a nested one");
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

  void publish(const TensorDict& tree, const std::vector<std::vector<SummedBox>>& boxes) override {
    const safetensors::FilePlan plan = safetensors::plan_file(tree, true);
    require_same(plan, OutlineNumbers(tree));
    std::vector<std::vector<formats::Box>> ordered;
    std::vector<std::uint64_t> sums;
    for (const std::size_t number : order_) {
      ordered.emplace_back();
      for (const SummedBox& box : boxes[number]) {
        ordered.back().push_back(box.box);
        sums.push_back(box.checksum);
      }
    }
    std::string header = header_of(plan, ordered);
    const bool fits = header.size() <= reserved_bytes_;
    if (fits) safetensors::pad_header(header, reserved_bytes_);
    if (options_.checksums) {
      formats::fill_boxes(header, formats::find_checksums(header, safetensors::kBoxesMember), sums);
    }
    if (fits) {
      replacement_->file().write_at(0, std::as_bytes(std::span(header)));
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

  void require_same(const safetensors::FilePlan& plan, const OutlineNumbers& numbers) const {
    if (plan.tensors.size() != order_.size()) refuse_other_tensors(path_);
    for (std::size_t i = 0; i < order_.size(); ++i) {
      const Leaf& leaf = plan.tensors[i]->leaf;
      const TensorPlace& place = places_[order_[i]];
      if (numbers.of(leaf) != order_[i] || leaf.dtype() != place.dtype ||
          leaf.shape() != place.shape) {
        refuse_other_tensors(path_);
      }
    }
  }

  /// Copies the file with a larger header, because the values exceed the reserved space.
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
    replacement_.reset();
    copy.publish(options_.durable);
  }

  Path path_;
  ShardedWriteOptions options_;
  std::vector<std::size_t> order_;  ///< numbers of the tensors, in file order
  std::uint64_t reserved_bytes_ = 0;
  std::optional<formats::FileReplacement> replacement_;
};

/// tensordict's folder.
class FolderLayout final : public ShardedLayout {
 public:
  FolderLayout(const Path& path, const TensorDict& outline, const ShardedWriteOptions& options,
               const std::string& id)
      : path_(path), options_(options) {
    const folder::Plan plan = folder::plan_tree(outline);
    const OutlineNumbers numbers(outline, &places_);
    folder::require_replaceable(path_);
    folder::warn_of_unloadable(plan, path_);
    replacement_.emplace(path_, bytes_of(places_), folder::foreign_in);
    os::Directory& root = replacement_->folder();
    const std::string marker = marker_text(id);
    os::File file = os::File::create_at(root, std::string(kStagingMarker));
    file.write_at(0, std::as_bytes(std::span(marker)));
    file.close_written();
    make_folders(plan);
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

  void publish(const TensorDict& tree, const std::vector<std::vector<SummedBox>>& boxes) override {
    const folder::Plan plan = folder::plan_tree(tree);
    const OutlineNumbers numbers(tree);
    require_same(plan, numbers);
    os::Directory& root = replacement_->folder();
    make_folders(plan);
    std::vector<formats::ChecksumLine> lines;
    for (const folder::Plan::File& planned : plan.files) {
      if (!planned.is_leaf) write_text(folder_of(plan, planned), planned.name, planned.text);
      if (options_.checksums) add_lines(plan, planned, numbers, boxes, lines);
    }
    if (options_.checksums) {
      write_text(root, std::string(formats::kChecksumsName), formats::checksums_text(lines));
    }
    root.remove_file(std::string(kStagingMarker));
    if (options_.durable) {
      // FolderReplacement syncs the root.
      for (std::size_t i = 1; i < plan.folders.size(); ++i) open_folder(plan, i).sync();
    }
    replacement_->publish(options_.durable);
  }

 private:
  os::Directory open_folder(const folder::Plan& plan, std::size_t number) {
    if (number == 0) return replacement_->folder().duplicate();
    return os::Directory::open_at(open_folder(plan, plan.folders[number].parent),
                                  plan.folders[number].name);
  }

  /// Returns the folder of a file. Keeps the last one open, because files are sorted by folder.
  os::Directory& folder_of(const folder::Plan& plan, const folder::Plan::File& file) {
    if (!open_.valid() || open_number_ != file.folder) {
      open_ = open_folder(plan, file.folder);
      open_number_ = file.folder;
    }
    return open_;
  }

  /// Creates the folders that are missing: all at first, at publish() those of new JSON values.
  void make_folders(const folder::Plan& plan) {
    open_.close();
    for (std::size_t i = 1; i < plan.folders.size(); ++i) {
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

  void require_same(const folder::Plan& plan, const OutlineNumbers& numbers) const {
    if (numbers.size() != places_.size()) refuse_other_tensors(path_);
    std::size_t num_files = 0;
    for (const folder::Plan::File& planned : plan.files) {
      if (!planned.is_leaf) continue;
      ++num_files;
      const TensorPlace& place = places_[numbers.of(planned.leaf)];
      if (place.file >= files_.size() || files_[place.file].path != plan.path_of(planned) ||
          planned.leaf.dtype() != place.dtype || planned.leaf.shape() != place.shape) {
        refuse_other_tensors(path_);
      }
    }
    if (num_files != files_.size()) refuse_other_tensors(path_);
  }

  void add_lines(const folder::Plan& plan, const folder::Plan::File& planned,
                 const OutlineNumbers& numbers, const std::vector<std::vector<SummedBox>>& boxes,
                 std::vector<formats::ChecksumLine>& lines) const {
    const std::string path = plan.path_of(planned);
    if (!planned.is_leaf) {
      const auto bytes = std::as_bytes(std::span(planned.text));
      std::vector<std::uint64_t> sums;
      for (std::uint64_t at = 0; at < bytes.size(); at += base::kChecksumBlockBytes) {
        const auto size = std::min<std::uint64_t>(base::kChecksumBlockBytes, bytes.size() - at);
        sums.push_back(base::xxh3(
            bytes.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(size))));
      }
      formats::append_lines(lines, path, bytes.size(), sums);
      return;
    }
    const std::size_t number = numbers.of(planned.leaf);
    const TensorPlace& place = places_[number];
    for (const SummedBox& box : boxes[number]) {
      auto bytes = formats::byte_box(place.shape, itemsize(place.dtype), box.box);
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

void require_same_tensors(const Path& path, const TensorDict& tree,
                          const std::vector<TensorPlace>& planned) {
  std::vector<TensorPlace> tensors;
  OutlineNumbers(tree, &tensors);
  const bool are_same =
      std::ranges::equal(tensors, planned, [](const TensorPlace& a, const TensorPlace& b) {
        return a.key == b.key && a.dtype == b.dtype && a.shape == b.shape;
      });
  if (!are_same) refuse_other_tensors(path);
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
  return std::filesystem::absolute(os::resolve_link(path)).parent_path() / name;
}

std::unique_ptr<ShardedLayout> lay_out(const Path& path, const TensorDict& outline,
                                       const std::vector<std::vector<formats::Box>>& boxes,
                                       const ShardedWriteOptions& options, const std::string& id) {
  const formats::Format& format = format_for_saving(path, options.format);
  const bool is_index = &format == &safetensors::kShardedFormat;
  if (!is_index && &format != &safetensors::kFormat && &format != &folder::kFormat) {
    throw base::invalid_argument(path.string())
        .expected(
            "a name that ends in \".safetensors\" or \".safetensors.index.json\", or a folder: "
            "several processes write these")
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
