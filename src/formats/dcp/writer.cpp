#include "formats/dcp/writer.hpp"

#include <algorithm>
#include <charconv>
#include <span>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>

#include "codecs/pickle/writer.hpp"
#include "codecs/zip/zip.hpp"
#include "core/tree/outline_leaf.hpp"
#include "formats/shared/object_file.hpp"

namespace tenfold::detail::formats::dcp {
namespace {

constexpr const char* kMetadataModule = "torch.distributed.checkpoint.metadata";
constexpr const char* kFileModule = "torch.distributed.checkpoint.filesystem";

class MetadataWriter {
 public:
  explicit MetadataWriter(const Metadata& metadata) : metadata_(metadata) {}

  std::string run() {
    object(kMetadataModule, "Metadata", [&] {
      to_.known_text("state_dict_metadata");
      dict([&] {
        for (const Entry& entry : metadata_.entries) {
          to_.known_text(entry.name);
          describe(entry);
        }
      });
      to_.known_text("planner_data");
      dict([&] {
        for (const Entry& entry : metadata_.entries) {
          to_.known_text(entry.name);
          path(entry.path);
        }
      });
      to_.known_text("storage_data");
      dict([&] {
        for (const Entry& entry : metadata_.entries) places(entry);
      });
      to_.known_text("storage_meta");
      to_.none();
      to_.known_text("version");
      to_.text("1.0.0");
    });
    return to_.take();
  }

 private:
  template <class Members>
  void dict(const Members& members) {
    to_.begin_dict();
    members();
    to_.end_dict();
  }

  template <class Members>
  void object(const char* module, const char* name, const Members& members) {
    to_.global(module, name);
    to_.new_object();
    dict(members);
    to_.set_attributes();
  }

  void describe(const Entry& entry) {
    const auto* tensor = std::get_if<TensorEntry>(&entry.what);
    if (tensor == nullptr) {
      to_.global(kMetadataModule, "BytesStorageMetadata");
      to_.new_object();
      return;
    }
    object(kMetadataModule, "TensorStorageMetadata", [&] {
      to_.known_text("properties");
      properties(tensor->dtype);
      to_.known_text("size");
      size(tensor->shape);
      to_.known_text("chunks");
      to_.begin_list();
      for (const Chunk& chunk : tensor->chunks) {
        object(kMetadataModule, "ChunkStorageMetadata", [&] {
          to_.known_text("offsets");
          size(chunk.offsets);
          to_.known_text("sizes");
          size(chunk.sizes);
        });
      }
      to_.end_list();
    });
  }

  /// Writes a TensorProperties. Its state is a tuple: dtype, layout, requires_grad, memory format,
  /// pin_memory.
  void properties(DType dtype) {
    to_.global(kMetadataModule, "TensorProperties");
    to_.new_object();
    to_.begin_tuple();
    to_.global("torch", to_string(dtype));
    to_.global("torch.serialization", "_get_layout");
    to_.begin_tuple();
    to_.known_text("torch.strided");
    to_.end_tuple();
    to_.call();
    to_.boolean(false);
    to_.global(kMetadataModule, "_MEM_FORMAT_ENCODING");
    to_.begin_tuple();
    to_.integer(0);
    to_.end_tuple();
    to_.call();
    to_.boolean(false);
    to_.end_tuple();
    to_.set_attributes();
  }

  void size(const Shape& lengths) {
    to_.global("torch", "Size");
    to_.begin_tuple();
    to_.begin_tuple();
    for (const std::int64_t length : lengths) to_.integer(length);
    to_.end_tuple();
    to_.end_tuple();
    to_.call();
  }

  void path(const std::vector<Key>& keys) {
    to_.begin_tuple();
    for (const Key& key : keys) {
      std::int64_t index = 0;
      std::from_chars(key.text.data(), key.text.data() + key.text.size(), index);
      if (key.is_index) {
        to_.integer(index);
      } else {
        to_.known_text(key.text);
      }
    }
    to_.end_tuple();
  }

  void places(const Entry& entry) {
    const auto* tensor = std::get_if<TensorEntry>(&entry.what);
    if (tensor == nullptr) return place(entry.name, nullptr, std::get<Item>(entry.what));
    for (const Chunk& chunk : tensor->chunks) {
      if (chunk.item.size_bytes != 0) place(entry.name, &chunk.offsets, chunk.item);
    }
  }

  void place(const std::string& name, const Shape* offsets, const Item& item) {
    object(kMetadataModule, "MetadataIndex", [&] {
      to_.known_text("fqn");
      to_.known_text(name);
      to_.known_text("offset");
      if (offsets == nullptr) {
        to_.none();
      } else {
        size(*offsets);
      }
      to_.known_text("index");
      to_.none();
    });
    object(kFileModule, "_StorageInfo", [&] {
      to_.known_text("relative_path");
      to_.known_text(metadata_.files[item.file]);
      to_.known_text("offset");
      to_.integer(static_cast<std::int64_t>(item.begin));
      to_.known_text("length");
      to_.integer(static_cast<std::int64_t>(item.size_bytes));
    });
  }

  const Metadata& metadata_;
  codecs::PickleWriter to_;
};

}  // namespace

ItemFile::ItemFile(DType dtype, const Shape& shape)
    : ItemFile(plan_object_file(outline_leaf(dtype, shape))) {}

ItemFile::ItemFile(const Value& value) : ItemFile(plan_object_file(NonTensor{value})) {}

ItemFile::ItemFile(std::vector<ZipArchiveEntry> entries) : entries_(std::move(entries)) {
  std::vector<codecs::ZipItem> items;
  for (const ZipArchiveEntry& entry : entries_) {
    const std::uint64_t size = entry.leaf ? entry.leaf->nbytes() : entry.head.size();
    items.push_back({entry.name, size, size, codecs::ZipMethod::stored, entry.alignment});
  }
  layout_ = codecs::ZipLayout(std::move(items));
  data_entry_ = static_cast<std::size_t>(
      std::ranges::find_if(entries_, [](const auto& entry) { return entry.leaf.has_value(); }) -
      entries_.begin());
  const bool has_data = data_entry_ < entries_.size();
  data_offset_ = has_data ? layout_.data_offset(data_entry_) : head(0).size();
  size_bytes_ =
      data_offset_ + tail(0).size() + (has_data ? entries_[data_entry_].leaf->nbytes() : 0);
}

std::vector<std::uint32_t> ItemFile::crc32s(std::uint32_t of_data) const {
  std::vector<std::uint32_t> sums;
  for (const ZipArchiveEntry& entry : entries_) {
    sums.push_back(entry.leaf ? of_data : codecs::crc32(std::as_bytes(std::span(entry.head))));
  }
  return sums;
}

std::string ItemFile::head(std::uint32_t crc32) const {
  const auto sums = crc32s(crc32);
  std::string bytes;
  for (std::size_t i = 0; i < entries_.size() && i <= data_entry_; ++i) {
    bytes += layout_.local_header(i, sums[i]) + entries_[i].head;
  }
  return bytes;
}

std::string ItemFile::tail(std::uint32_t crc32) const {
  const auto sums = crc32s(crc32);
  std::string bytes;
  for (std::size_t i = data_entry_ + 1; i < entries_.size(); ++i) {
    bytes += layout_.local_header(i, sums[i]) + entries_[i].head;
  }
  return bytes + layout_.directory(sums);
}

std::string write_metadata(const Metadata& metadata) { return MetadataWriter(metadata).run(); }

}  // namespace tenfold::detail::formats::dcp
